"""What vLLM reads from the environment, set before it is imported. A value set by the operator wins."""

from __future__ import annotations

import os

DEFAULTS = {
    # nothing about this machine leaves it
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # our own log tells of loading and of faults; vLLM's per-second statistics would drown it
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0",
    "TQDM_DISABLE": "1",
}


def prepare() -> None:
    """Set the defaults that are not set yet."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)

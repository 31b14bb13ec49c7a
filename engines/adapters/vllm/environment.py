"""What vLLM reads from the environment, set before it is imported. A value set by the operator wins."""

from __future__ import annotations

import os

DEFAULTS = {
    # nothing about this machine leaves it
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # our own log tells of loading and of faults; what vLLM says of itself would drown it
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0",
    "TQDM_DISABLE": "1",
    # a forked child would hold open what must close when this process dies
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}


FEW_CORES = 2


def prepare() -> None:
    """Set the defaults that are not set yet."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if len(os.sched_getaffinity(0)) <= FEW_CORES:
        # by itself vLLM leaves a core to the process that owns the engine: half of the machine, where that one is idle
        os.environ.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")

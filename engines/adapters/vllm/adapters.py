"""LoRA adapters of a profile, by the names they are served under."""

from __future__ import annotations

import json
from pathlib import Path

from vllm.lora.request import LoRARequest

from ..base import EngineLoadError, WorkError

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


class Adapters:
    """``paths`` maps a served name to a folder in PEFT's layout, or a hub id."""

    def __init__(self, paths: dict[str, str]) -> None:
        self._requests = {
            name: LoRARequest(lora_name=name, lora_int_id=index, lora_path=path)
            for index, (name, path) in enumerate(sorted(paths.items()), start=1)
        }

    def request(self, name: str | None) -> LoRARequest | None:
        """vLLM's handle for an adapter.

        Raises:
            WorkError: ``unknown_lora_adapter``.
        """
        if name is None:
            return None
        found = self._requests.get(name)
        if found is None:
            known = ", ".join(self._requests) or "none"
            message = f"no LoRA adapter is served as {name!r}; served are: {known}"
            raise WorkError("unknown_lora_adapter", message, param="lora_adapter")
        return found


def max_rank(paths: dict[str, str]) -> int:
    """The smallest rank vLLM allows that holds every local adapter.

    Raises:
        EngineLoadError: a folder has no readable ``adapter_config.json``, or a rank is beyond vLLM's largest.
    """
    rank = 1
    for name, path in paths.items():
        folder = Path(path)
        if not folder.exists():
            # a hub id: vLLM fetches it at first use; this is the largest rank in common use
            rank = max(rank, 64)
            continue
        try:
            rank = max(rank, int(json.loads((folder / "adapter_config.json").read_text())["r"]))
        except (OSError, ValueError, KeyError) as error:
            message = f"LoRA adapter {name!r} at {path!r} cannot be read: {error}"
            raise EngineLoadError(message, error_class="LoraAdapterUnreadable", permanent=True) from error
    for allowed in RANKS:
        if rank <= allowed:
            return allowed
    raise EngineLoadError(f"LoRA rank {rank} is too large", error_class="LoraRankTooLarge", permanent=True)

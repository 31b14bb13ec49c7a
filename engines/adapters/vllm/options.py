"""From a profile's ``adapter_options.loadtime`` to vLLM's engine arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from vllm import AsyncEngineArgs

from ...embedded import ModelFilesMissing, is_package, prepare
from ...protocol.catalog import ModelEntry, Profile
from ..base import EngineLoadError

CPU_KV_CACHE_BYTES = 1 << 30


def model_folder(profile: Profile) -> str:
    """Where the weights are: a prepared folder for a ``package:`` source, otherwise the hub id or path as it is.

    Raises:
        EngineLoadError: the package is missing.
    """
    if not is_package(profile.source):
        return profile.source
    try:
        return str(prepare(profile.source))
    except ModelFilesMissing as error:
        raise EngineLoadError(str(error), error_class="ModelFilesMissing", permanent=True) from error


def engine_args(entry: ModelEntry, profile: Profile, model: str) -> AsyncEngineArgs:
    """Arguments of ``AsyncLLM``."""
    arguments: dict[str, Any] = {
        "model": model,
        "served_model_name": entry.name,
        "revision": None if Path(model).is_dir() else entry.revision,
        "enable_log_requests": False,
        "disable_log_stats": True,
        "max_model_len": entry.generation.context_length if entry.generation else None,
    }
    if not torch.cuda.is_available():
        arguments |= _on_cpu()
    return AsyncEngineArgs(**arguments)


def _on_cpu() -> dict[str, Any]:
    space = {} if os.environ.get("VLLM_CPU_KVCACHE_SPACE") else {"kv_cache_memory_bytes": CPU_KV_CACHE_BYTES}
    return {"dtype": "bfloat16" if torch.cpu._is_avx512_bf16_supported() else "auto", "enforce_eager": True, **space}

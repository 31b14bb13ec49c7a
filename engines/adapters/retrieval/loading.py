"""Where a model's files are, on which device and in which precision it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from engines import embedded

from ...protocol.catalog import ModelEntry, Profile
from ..base import EngineLoadError

T = TypeVar("T")

PRECISIONS: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def precision(wanted: str | None, on: torch.device) -> torch.dtype:
    """The dtype of the forward pass: as wanted, and bfloat16 by default where the hardware computes in it.

    float16 on a CPU means "half the width": bfloat16, which CPUs have instructions for, or float32.

    Raises:
        EngineLoadError: no such precision.
    """
    if wanted not in (None, "auto", *PRECISIONS):
        raise EngineLoadError(f"unknown compute_precision {wanted!r}", error_class="InvalidConfig", permanent=True)
    if wanted == "float32":
        return torch.float32
    if on.type == "cuda":
        if wanted == "float16":
            return torch.float16
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    return torch.bfloat16 if cpu_has_bfloat16() else torch.float32


def cpu_has_bfloat16() -> bool:
    """AVX512_BF16 or AMX. ``ONEDNN_MAX_CPU_ISA`` can hide them from the kernels; that is the operator's choice."""
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def cores() -> int:
    """CPU cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def library_arguments(entry: ModelEntry, profile: Profile, dtype: torch.dtype, on: torch.device) -> dict[str, Any]:
    """Arguments that all sentence-transformers classes take."""
    options = profile.loadtime
    model_kwargs: dict[str, Any] = {"dtype": dtype}
    if attention := options.get("attn_implementation"):
        model_kwargs["attn_implementation"] = attention
    is_folder = Path(profile.source).is_dir() or embedded.is_package(profile.source)
    return {
        "device": str(on),
        "model_kwargs": model_kwargs,
        "config_kwargs": dict(options.get("config_kwargs") or {}),
        "trust_remote_code": bool(options.get("trust_remote_code", False)),
        "revision": None if is_folder else entry.revision,
    }


def loaded(name: str, load: Callable[[], T]) -> T:
    """Call a library's constructor; its faults become ``EngineLoadError``, permanent when another try cannot help."""
    try:
        return load()
    except EngineLoadError:
        raise
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise EngineLoadError(f"{name}: {error}", error_class="OutOfMemory", permanent=False) from error
    except (OSError, ValueError, KeyError, ImportError, TypeError, AttributeError) as error:
        # missing files, a hub id offline, an unknown architecture, a checkpoint of another class
        raise EngineLoadError(f"{name}: {error}", error_class=type(error).__name__, permanent=True) from error

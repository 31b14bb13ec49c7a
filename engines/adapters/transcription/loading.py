"""Where a Whisper model's files are and how it is run: device, precision, options."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import ctranslate2
import faster_whisper
from faster_whisper import WhisperModel

from ...protocol.catalog import ModelEntry, Profile
from ..base import EngineLoadError
from ..files import model_files

PRECISIONS = ("float32", "float16", "bfloat16", "int8")
ELSEWHERE = frozenset(("max_concurrent_requests", "memory_footprint_bytes"))
"""Options read by other parts, or that describe what is found out here."""

BEAMS = 5


def load(entry: ModelEntry, profile: Profile) -> WhisperModel:
    """Load the weights; blocks.

    Raises:
        EngineLoadError: the files are not there or not in CTranslate2's form, or the precision is unknown.
    """
    cuda = ctranslate2.get_cuda_device_count() > 0
    source = model_source(profile)
    try:
        return WhisperModel(
            source,
            device="cuda" if cuda else "cpu",
            compute_type=precision(profile.compute_precision, cuda=cuda),
            cpu_threads=_cores(),
            revision=_revision(entry, profile, source),
        )
    except (OSError, ValueError, RuntimeError) as error:
        # CTranslate2 has RuntimeError for files that are not its own
        raise EngineLoadError(f"{entry.name}: {error}", error_class=type(error).__name__, permanent=True) from error


def model_source(profile: Profile) -> str:
    """A folder, a hub id, or faster-whisper's own name where the hub id has weights of another library.

    Raises:
        EngineLoadError: the package is not installed.
    """
    files = model_files(profile)
    if files != profile.source:
        return files
    name = profile.source.removeprefix("openai/whisper-")
    return name if name != profile.source and name in faster_whisper.available_models() else profile.source


def precision(wanted: str | None, *, cuda: bool) -> str:
    """CTranslate2's compute type. By default int8 weights on CPUs and float16 on GPUs; half floats are float32 on CPUs.

    Raises:
        EngineLoadError: no such precision.
    """
    if wanted in (None, "auto"):
        return "float16" if cuda else "int8"
    if wanted not in PRECISIONS:
        raise EngineLoadError(f"unknown compute_precision {wanted!r}", error_class="InvalidConfig", permanent=True)
    return wanted if cuda or wanted == "int8" else "float32"


def options(profile: Profile) -> dict[str, Any]:
    """Arguments of ``transcribe`` from the profile: ``num_beams`` and ``vad_filter``.

    Raises:
        EngineLoadError: an option that this engine has nothing for.
    """
    unknown = [f"loadtime.{name}" for name in profile.loadtime if name not in ELSEWHERE]
    unknown += [f"runtime.{name}" for name in profile.runtime if name not in ("num_beams", "vad_filter")]
    if unknown:
        raise EngineLoadError(f"Whisper has nothing for {unknown[0]}", error_class="UnsupportedOption", permanent=True)
    return {
        "beam_size": int(profile.runtime.get("num_beams", BEAMS)),
        "vad_filter": bool(profile.runtime.get("vad_filter", True)),
    }


def size(entry: ModelEntry, profile: Profile) -> int:
    """Bytes of the weights' file, once it is there; 0 where it is not found. Blocks, no network."""
    source = folder = model_source(profile)
    if not Path(source).is_dir():
        with contextlib.suppress(OSError, ValueError):
            folder = faster_whisper.download_model(
                source, local_files_only=True, revision=_revision(entry, profile, source)
            )
    weights = Path(folder) / "model.bin"
    return weights.stat().st_size if weights.is_file() else 0


def _revision(entry: ModelEntry, profile: Profile, source: str) -> str | None:
    """The entry's revision is one of the repository that the profile names, not of the library's own."""
    return entry.revision if source == profile.source and not Path(source).is_dir() else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

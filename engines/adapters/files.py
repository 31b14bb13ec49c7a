"""Where a profile's weights are, and how big."""

from __future__ import annotations

import contextlib
from pathlib import Path

from .. import embedded
from ..protocol.catalog import Profile
from .base import EngineLoadError

WEIGHTS = (".safetensors", ".bin")
"""How files of weights end. A folder may have the same weights in several forms: the first one counts."""


def model_files(profile: Profile) -> str:
    """A prepared folder for a ``package:`` source, otherwise the hub id or path as it is. May prepare files; blocks.

    Raises:
        EngineLoadError: the package or the folder is missing.
    """
    if embedded.is_package(profile.source):
        try:
            return str(embedded.prepare(profile.source))
        except embedded.ModelFilesMissing as error:
            raise EngineLoadError(str(error), error_class="ModelFilesMissing", permanent=True) from error
    if profile.source.startswith(("/", ".", "~")) and not Path(profile.source).expanduser().is_dir():
        message = f"the model's folder {profile.source!r} does not exist"
        raise EngineLoadError(message, error_class="ModelFilesMissing", permanent=True)
    return profile.source


def weight_bytes(profile: Profile, revision: str | None) -> int:
    """Bytes of the weights on this disk; 0 where there are none, or not in a form that is known. Blocks, no network."""
    folder = _folder_here(profile.source, revision)
    files = [file for file in folder.rglob("*") if file.suffix in WEIGHTS and file.is_file()] if folder else []
    for form in WEIGHTS:
        found = [file for file in files if file.suffix == form]
        # Mistral's own form beside the library's
        own = [file for file in found if not file.name.startswith("consolidated")]
        if found:
            return sum(file.stat().st_size for file in own or found)
    return 0


def _folder_here(source: str, revision: str | None) -> Path | None:
    if embedded.is_package(source):
        with contextlib.suppress(embedded.ModelFilesMissing):
            return embedded.locate(source)
        return None
    if (folder := Path(source).expanduser()).is_dir():
        return folder
    from huggingface_hub import snapshot_download

    with contextlib.suppress(OSError, ValueError):  # not downloaded, or no hub id
        return Path(snapshot_download(source, revision=revision, local_files_only=True))
    return None

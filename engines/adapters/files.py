"""Where a profile's weights are."""

from __future__ import annotations

from pathlib import Path

from .. import embedded
from ..protocol.catalog import Profile
from .base import EngineLoadError


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

"""Generation with vLLM's ``AsyncLLM``, and beside it ``pooling``. vLLM is imported when the first engine is created."""

from __future__ import annotations

from ...protocol.catalog import ModelEntry, Profile
from ..base import Engine
from .environment import prepare

# vLLM reads its environment when it is imported
prepare()


def create(entry: ModelEntry, profile: Profile) -> Engine:
    """A new engine for one profile of a generation model."""
    from .engine import VllmEngine

    return VllmEngine(entry, profile)

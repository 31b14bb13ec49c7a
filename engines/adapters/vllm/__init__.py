"""Generation with vLLM's ``AsyncLLM``."""

from __future__ import annotations

from ...protocol.catalog import ModelEntry, Profile


def create(entry: ModelEntry, profile: Profile) -> VllmEngine:
    """A new engine for one profile of a generation model."""
    return VllmEngine(entry, profile)


from . import environment as _environment  # noqa: E402  vLLM reads its environment when it is imported

_environment.prepare()

from .engine import VllmEngine  # noqa: E402

__all__ = ["VllmEngine", "create"]

"""Embeddings and scores with vLLM's pooling runner, for models whose entry says so."""

from __future__ import annotations

from ....protocol.catalog import ModelEntry, Profile
from ...base import Engine


def create(entry: ModelEntry, profile: Profile) -> Engine:
    """A new engine, not loaded yet."""
    from .engine import VllmPoolingEngine

    return VllmPoolingEngine(entry, profile)

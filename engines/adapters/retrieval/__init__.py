"""Retrieval engines on the sentence-transformers classes, behind the batching engine."""

from __future__ import annotations

import importlib

from ...protocol.catalog import EngineKind, ModelEntry, Profile
from ..base import Engine

_ENGINES: dict[EngineKind, tuple[str, str]] = {
    "sentence_transformer": ("sentence_transformer", "SentenceTransformerEngine"),
    "sparse_encoder": ("sparse_encoder", "SparseEncoderEngine"),
    "multi_vector_encoder": ("multi_vector_encoder", "MultiVectorEncoderEngine"),
    "cross_encoder": ("cross_encoder", "CrossEncoderEngine"),
}


def create(entry: ModelEntry, profile: Profile) -> Engine:
    """A new engine, not loaded yet."""
    module, name = _ENGINES[profile.engine]
    engine: Engine = getattr(importlib.import_module(f"{__name__}.{module}"), name)(entry, profile)
    return engine

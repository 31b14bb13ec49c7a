"""Engines by kind. Importing this package costs nothing: a library is imported when an engine that needs it is made."""

from __future__ import annotations

import importlib

from ..protocol.catalog import EngineKind, ModelEntry, Profile
from .base import Engine, EngineLoadError

_FACTORIES: dict[EngineKind, str] = {
    "vllm": "engines.adapters.vllm",
    "vllm_pooling": "engines.adapters.vllm.pooling",
    "sentence_transformer": "engines.adapters.retrieval",
    "sparse_encoder": "engines.adapters.retrieval",
    "multi_vector_encoder": "engines.adapters.retrieval",
    "cross_encoder": "engines.adapters.retrieval",
    "whisper": "engines.adapters.transcription",
    "spacy": "engines.adapters.extraction",
    "gliner": "engines.adapters.extraction",
    "nli": "engines.adapters.extraction",
}

IMPLEMENTED: frozenset[EngineKind] = frozenset(_FACTORIES)


def create(entry: ModelEntry, profile: Profile) -> Engine:
    """A new engine, not loaded yet, for one profile of a model. The first call for a kind imports its library.

    Raises:
        EngineLoadError: no adapter serves the profile's kind.
    """
    if profile.engine not in IMPLEMENTED:
        raise EngineLoadError(
            f"no engine for {profile.engine!r} ({profile.adapter_path})",
            error_class="UnsupportedAdapter",
            permanent=True,
        )
    module = importlib.import_module(_FACTORIES[profile.engine])
    engine: Engine = module.create(entry, profile)
    return engine

"""Extraction engines: entities, relations and classifications from texts and documents.

Offsets (``start``, ``end``) count Unicode code points, as Python's strings do, from the start of the item's text:
``text[start:end]`` is the entity exactly, also behind emoji and combining characters. JavaScript counts UTF-16 units
and needs a conversion (``Array.from(text)``). The text of a document comes back in ``data.text``, which the offsets
refer to.
"""

from __future__ import annotations

import importlib

from ...protocol.catalog import EngineKind, ModelEntry, Profile
from ..base import Engine

_ENGINES: dict[EngineKind, tuple[str, str]] = {
    "spacy": ("spacy", "SpacyEngine"),
    "gliner": ("gliner", "GlinerEngine"),
    "nli": ("nli", "NliEngine"),
}


def create(entry: ModelEntry, profile: Profile) -> Engine:
    """A new engine, not loaded yet."""
    module, name = _ENGINES[profile.engine]
    engine: Engine = getattr(importlib.import_module(f"{__name__}.{module}"), name)(entry, profile)
    return engine

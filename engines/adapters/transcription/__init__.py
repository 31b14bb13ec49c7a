"""Speech to text: Whisper models through faster-whisper (CTranslate2)."""

from __future__ import annotations

from ...protocol.catalog import ModelEntry, Profile
from ..base import Engine


def create(entry: ModelEntry, profile: Profile) -> Engine:
    """A new engine, not loaded yet."""
    from .engine import WhisperEngine

    return WhisperEngine(entry, profile)

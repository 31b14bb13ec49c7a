"""One model of a worker, loaded or not."""

from __future__ import annotations

import asyncio

from engines.adapters.base import Engine
from engines.protocol.catalog import ModelEntry, Profile, variant
from engines.protocol.cluster import ModelState

MAX_CONCURRENT = 256


class LoadFailed(Exception):
    """A model could not be loaded. ``attempts`` counts the tries of this worker."""

    def __init__(self, message: str, error_class: str, attempts: int, permanent: bool) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.attempts = attempts
        self.permanent = permanent


class Slot:
    """One (model, profile): its engine when loaded, and who uses it."""

    def __init__(self, entry: ModelEntry, profile: Profile) -> None:
        self.entry = entry
        self.profile = profile
        self.name = variant(entry.name, profile.name)
        self.engine: Engine | None = None
        self.loading: asyncio.Task[Engine] | None = None
        self.failure: LoadFailed | None = None
        self.retry_at = 0.0
        self.attempts = 0
        self.loaded_at = float("-inf")
        self.deaths = 0
        """How often in a row its engine died soon after it was loaded; the first may have been older."""
        self.users = 0
        """Who has the engine or waits for it."""
        self.used_at = 0.0
        self.size = 0
        """Bytes that it took when it was last loaded; 0: not known."""
        self.cache_tokens = 0
        self.gone: asyncio.Event | None = None
        """Once the catalog has changed the model: set when this engine is closed."""
        limit = profile.loadtime.get("max_concurrent_requests", MAX_CONCURRENT)
        self.permits = asyncio.Semaphore(int(limit))

    @property
    def state(self) -> ModelState:
        if self.engine is not None:
            return "loaded"
        if self.loading is not None:
            return "loading"
        return "failed" if self.failure is not None else "available"

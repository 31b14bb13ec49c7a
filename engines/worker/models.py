"""The engines of one worker: loaded on demand, each once, shared by the requests that use it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from engines.adapters.base import Engine, EngineLoadError, EngineStatus
from engines.protocol.catalog import ModelEntry, Profile
from engines.protocol.cluster import ModelStatus

from .residency import Residency
from .slot import LoadFailed, Slot

log = logging.getLogger("sie.worker")

FIRST_PAUSE = 1.0
LAST_PAUSE = 60.0
SHORT_LIFE = 60.0
"""Seconds: an engine that dies sooner was not worth its load."""
AT_ONCE = 2
"""Deaths in a row after which a new engine is loaded without a pause: one request may take two engines with it."""
CLOSE_TIMEOUT = 5.0
PROGRESS_EVERY = 10.0

Factory = Callable[[ModelEntry, Profile], Engine]


class Models:
    """Loads, lends and evicts engines, within ``memory_budget`` bytes (``None``: no limit). ``changed`` is called when
    a state changes, so that it is told at once."""

    def __init__(self, factory: Factory, changed: Callable[[], None], memory_budget: int | None = None) -> None:
        self._factory = factory
        self._changed = changed
        self._residency = Residency(memory_budget, self._evict)
        self._slots: dict[tuple[str, str], Slot] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._leaving: dict[str, asyncio.Event] = {}

    @contextlib.asynccontextmanager
    async def use(self, entry: ModelEntry, profile: Profile) -> AsyncIterator[Engine]:
        """Borrow the engine, loading it first if need be; at most its limit of users at a time.

        Raises:
            LoadFailed: it cannot be loaded.
        """
        with self._wanted(entry, profile) as slot:
            await self._load(slot)
            async with slot.permits:
                # the engine may have died while this request waited for its turn
                engine = await self._load(slot)
                try:
                    yield engine
                finally:
                    slot.used_at = time.monotonic()

    async def load(self, entry: ModelEntry, profile: Profile) -> None:
        """Load ahead of any request; a failure is logged and kept as the model's state."""
        with self._wanted(entry, profile) as slot, contextlib.suppress(LoadFailed):
            await self._load(slot)

    def pin(self, names: Iterable[str]) -> None:
        """Never evict these models (``model`` or ``model:profile``)."""
        self._residency.pin(names)

    def renew(self, current: Callable[[str], tuple[ModelEntry, Profile] | None]) -> None:
        """The catalog has changed. An engine whose model is another now is closed once its last user has left, and a
        new one is loaded when it is asked for, and not before: both may not fit into memory."""
        for key, slot in list(self._slots.items()):
            if current(slot.name) != (slot.entry, slot.profile):
                del self._slots[key]
                slot.gone = self._leaving[slot.name] = asyncio.Event()
                self._close_if_gone(slot)
        self._changed()

    def discard(self, entry: ModelEntry, profile: Profile, engine: Engine) -> None:
        """The engine is dead: the next request loads a new one, after a pause if it dies soon time after time."""
        slot = self._slots.get((entry.name, profile.name))
        if slot is not None and slot.engine is engine:
            self._remove(slot)
            now = time.monotonic()
            slot.deaths = slot.deaths + 1 if now - slot.loaded_at < SHORT_LIFE else 1
            if slot.deaths > AT_ONCE:
                message = f"its engine died {slot.deaths} times in a row, soon after it was loaded"
                slot.failure = LoadFailed(message, "EngineDied", slot.deaths, permanent=False)
                slot.retry_at = now + min(LAST_PAUSE, FIRST_PAUSE * 2.0 ** (slot.deaths - AT_ONCE - 1))
            self._changed()

    def statuses(self) -> list[ModelStatus]:
        return [
            ModelStatus(name=slot.name, state=slot.state, last_error=str(slot.failure) if slot.failure else None)
            for slot in sorted(self._slots.values(), key=lambda slot: slot.name)
            if slot.state != "available"
        ]

    def load_of_engines(self) -> EngineStatus:
        """The sum over all engines."""
        total = EngineStatus()
        for slot in self._slots.values():
            if slot.engine is not None:
                status = slot.engine.status()
                total.queue_depth += status.queue_depth
                total.inflight_batches += status.inflight_batches
                total.pending_cost += status.pending_cost
                total.memory_bytes += status.memory_bytes
        return total

    def is_loaded(self, entry: ModelEntry, profile: Profile) -> bool:
        slot = self._slots.get((entry.name, profile.name))
        return slot is not None and slot.engine is not None

    def cache_tokens(self) -> int:
        """Tokens that the key-value caches of the loaded engines hold together; 0 where none says."""
        return sum(slot.cache_tokens for slot in self._slots.values() if slot.engine is not None)

    def metrics(self) -> dict[str, dict[str, float]]:
        """What each loaded engine measures, by the model's name."""
        loaded = ((slot.name, slot.engine) for slot in self._slots.values() if slot.engine is not None)
        return {name: status.metrics for name, engine in loaded if (status := engine.status()).metrics}

    async def close(self) -> None:
        """Close every engine; bounded in time."""
        for slot in self._slots.values():
            if slot.loading is not None:
                slot.loading.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await slot.loading
            if slot.engine is not None:
                self._remove(slot)
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_TIMEOUT)

    @contextlib.contextmanager
    def _wanted(self, entry: ModelEntry, profile: Profile) -> Iterator[Slot]:
        """The model has one user more: it is not evicted, and a load that waits for memory is not given up."""
        slot = self._slots.setdefault((entry.name, profile.name), Slot(entry, profile))
        slot.users += 1
        try:
            yield slot
        finally:
            slot.users -= 1
            if not slot.users:
                self._close_if_gone(slot)
                self._residency.left()

    async def _load(self, slot: Slot) -> Engine:
        if slot.engine is not None:
            return slot.engine
        if slot.loading is None:
            if slot.failure is not None and (slot.failure.permanent or time.monotonic() < slot.retry_at):
                raise slot.failure
            slot.loading = asyncio.create_task(self._load_now(slot), name=f"load {slot.name}")
            self._changed()
        # a request that leaves must not take the load away from the others
        return await asyncio.shield(slot.loading)

    async def _load_now(self, slot: Slot) -> Engine:
        started = time.monotonic()
        engine: Engine | None = None
        telling = asyncio.create_task(_tell_progress(slot.name, started))
        try:
            if (leaving := self._leaving.get(slot.name)) is not None and leaving is not slot.gone:
                await leaving.wait()
            await self._residency.reserve(slot)
            if self._residency.limited and self._closing:
                # until it is closed, what leaves holds its memory
                await asyncio.wait(self._closing)
            slot.attempts += 1
            log.info("model %s: loading (attempt %d)", slot.name, slot.attempts)
            # creating an engine imports its library: seconds in which heart-beats must go on
            engine = await asyncio.to_thread(self._factory, slot.entry, slot.profile)
            await engine.load()
        except asyncio.CancelledError:
            if engine is not None:
                await self._close(slot.name, engine)
            raise
        except Exception as error:
            if engine is not None:
                await self._close(slot.name, engine)
            slot.failure = self._failure(slot, error)
            raise slot.failure from error
        else:
            slot.engine = engine
            slot.cache_tokens = engine.status().cache_tokens
            slot.failure = None
            slot.attempts = 0
            slot.used_at = slot.loaded_at = time.monotonic()
            self._residency.loaded(slot)
            log.info("model %s: loaded in %.1f s", slot.name, time.monotonic() - started)
            return engine
        finally:
            telling.cancel()
            slot.loading = None
            if slot.engine is None:
                self._residency.release(slot)
            self._close_if_gone(slot)
            self._changed()

    def _failure(self, slot: Slot, error: Exception) -> LoadFailed:
        if isinstance(error, EngineLoadError):
            failure = LoadFailed(str(error), error.error_class, slot.attempts, error.permanent)
            log.error("model %s: cannot be loaded: %s", slot.name, error)
        else:
            failure = LoadFailed(f"{type(error).__name__}: {error}", type(error).__name__, slot.attempts, False)
            log.error("model %s: cannot be loaded", slot.name, exc_info=error)
        # without a try there was no room, which may change at any time
        pause = min(LAST_PAUSE, FIRST_PAUSE * 2.0 ** (slot.attempts - 1)) if slot.attempts else 0.0
        slot.retry_at = time.monotonic() + pause
        return failure

    def _evict(self, slot: Slot) -> None:
        self._remove(slot)
        self._changed()

    def _close_if_gone(self, slot: Slot) -> None:
        """Close an engine that the catalog no longer has, when nobody uses it."""
        if slot.gone is None or slot.users or slot.loading is not None:
            return
        if slot.engine is None:
            self._left(slot)
            return
        log.info("model %s: closed, the catalog has changed it", slot.name)
        self._remove(slot).add_done_callback(lambda _: self._left(slot))

    def _left(self, slot: Slot) -> None:
        assert slot.gone is not None
        slot.gone.set()
        if self._leaving.get(slot.name) is slot.gone:
            del self._leaving[slot.name]

    def _remove(self, slot: Slot) -> asyncio.Task[None]:
        """Take a loaded engine out of use and close it."""
        engine, slot.engine = slot.engine, None
        assert engine is not None
        self._residency.release(slot)
        task = asyncio.create_task(self._close(slot.name, engine))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _close(self, name: str, engine: Engine) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await engine.close()
        except Exception:
            log.exception("model %s: closing failed", name)


async def _tell_progress(name: str, started: float) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EVERY)
        log.info("model %s: still loading after %.0f s", name, time.monotonic() - started)

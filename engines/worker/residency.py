"""The memory budget of a worker: what its models hold, what those that load will need, and who leaves for whom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from engines.adapters.base import EngineLoadError
from engines.adapters.files import weight_bytes

from .slot import Slot

log = logging.getLogger("sie.worker")


class NoRoom(EngineLoadError):
    """The pinned models leave too little of the budget for this one, whoever else leaves."""

    def __init__(self, message: str) -> None:
        super().__init__(message, error_class="MemoryBudget", permanent=False)


class Residency:
    """Keeps models within ``budget`` bytes (``None``: no limit). ``evict`` takes an idle model's engine away at once,
    calls ``release``, and closes the engine in its own time."""

    def __init__(self, budget: int | None, evict: Callable[[Slot], None]) -> None:
        self._budget = budget
        self._evict = evict
        self._held: dict[Slot, int] = {}
        """Bytes of each model: real ones where it is loaded, reserved ones where it is loading."""
        self._pinned: frozenset[str] = frozenset()
        self._moved = asyncio.Event()

    def pin(self, names: Iterable[str]) -> None:
        """Never evict these models (``model`` or ``model:profile``)."""
        self._pinned = frozenset(names)
        self.left()

    @property
    def limited(self) -> bool:
        return self._budget is not None

    async def reserve(self, slot: Slot) -> None:
        """Reserve what a model will need before it is loaded: evict idle ones, least recently used first, and wait
        while that is not enough. A model that is bigger than the budget is loaded when it is alone.

        Raises:
            NoRoom: pinned models are in the way.
            asyncio.CancelledError: nobody wants the model any more.
        """
        if self._budget is None:
            return
        size = await self._expected(slot)
        told = False
        while (victims := self._victims(max(self._budget - size, 0))) is None:
            self._check_pinned(size, self._budget)
            if not told:
                log.info("model %s: waits until models in use leave room for its %d bytes", slot.name, size)
                told = True
            self._moved.clear()
            await self._moved.wait()
            if not slot.users:
                raise asyncio.CancelledError("nobody wants the model any more")
        if size > self._budget:
            log.warning("model %s: it needs %d bytes, the memory budget is %d", slot.name, size, self._budget)
        self._held[slot] = size
        for victim in victims:
            log.info("model %s: evicted, the memory budget has no room for it and %s", victim.name, slot.name)
            self._evict(victim)

    def loaded(self, slot: Slot) -> None:
        """The real size takes the place of what was reserved; idle models leave if that is too much."""
        if self._budget is None:
            return
        self._measure()
        self._trim()
        if (total := sum(self._held.values())) > self._budget:
            log.warning("model %s: with it %d bytes are held, the memory budget is %d", slot.name, total, self._budget)
        self._moved.set()

    def release(self, slot: Slot) -> None:
        """The model is no longer loaded, or could not be."""
        self._held.pop(slot, None)
        self._moved.set()

    def left(self) -> None:
        """A model has lost its last user, or its pin."""
        self._trim()
        self._moved.set()

    async def _expected(self, slot: Slot) -> int:
        """Bytes as the catalog says, or as last time if that was more, else as its files have; 0: nobody knows."""
        known = max(int(slot.profile.loadtime.get("memory_footprint_bytes", 0)), slot.size)
        return known or await asyncio.to_thread(weight_bytes, slot.profile, slot.entry.revision)

    def _victims(self, limit: int) -> list[Slot] | None:
        """Who has to leave so that at most ``limit`` bytes are held; ``None`` where too few are idle."""
        self._measure()
        total = sum(self._held.values())
        victims: list[Slot] = []
        for slot in self._idle():
            if total <= limit:
                break
            total -= self._held[slot]
            victims.append(slot)
        return victims if total <= limit else None

    def _idle(self) -> list[Slot]:
        """Who can leave, least recently used first. One that is not known to hold anything makes no room."""
        idle = [
            slot
            for slot, size in self._held.items()
            if size and slot.engine is not None and not slot.users and slot.name not in self._pinned
        ]
        return sorted(idle, key=lambda slot: slot.used_at)

    def _check_pinned(self, size: int, budget: int) -> None:
        pinned = sum(held for slot, held in self._held.items() if slot.name in self._pinned and slot.gone is None)
        if pinned > max(budget - size, 0):
            message = f"it needs {size} bytes, and pinned models hold {pinned} of the memory budget of {budget} bytes"
            raise NoRoom(message)

    def _measure(self) -> None:
        for slot in self._held:
            if slot.engine is not None:
                # an engine that reports nothing keeps what was reserved
                self._held[slot] = slot.size = slot.engine.status().memory_bytes or self._held[slot]

    def _trim(self) -> None:
        """Evict idle models while all together are above the budget; one alone may be."""
        if self._budget is None:
            return
        for slot in self._idle():
            total = sum(self._held.values())
            if total <= self._budget or total == self._held[slot]:
                return
            log.info("model %s: evicted, loaded models are above the memory budget", slot.name)
            self._evict(slot)

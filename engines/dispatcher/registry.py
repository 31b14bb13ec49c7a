"""The workers as their heart-beats tell of them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from engines.bus.subjects import Lane
from engines.protocol.cluster import ModelState, ModelStatus, Route, Traffic, WorkerStatus

from .routing import Fit, Place, fit, lane_of, place

STALE_AFTER = 5.0
DROP_AFTER = 30.0
RATE_OVER = 5.0
"""Seconds over which rates are taken."""
FRESH = 0.05
"""Seconds in which a choice may go by the load that was known before: what came and went since is counted here."""

MOST_FITS = 1024

_ORDER: dict[ModelState, int] = {"loaded": 0, "loading": 1, "failed": 2, "available": 3}


class Registry:
    """Holds the last heart-beat of every worker. ``lost`` is called with a worker's name and a reason when it goes."""

    def __init__(self, lost: Callable[[str, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._lost = lost
        self._clock = clock
        self._workers: dict[str, WorkerStatus] = {}
        self._heard: dict[str, float] = {}
        self._counts: dict[str, deque[tuple[float, int, int]]] = {}
        self._sent: Counter[str] = Counter()
        self._fits: dict[tuple[Route, str, str], Fit] = {}
        self._forgotten = 0.0

    def beat(self, status: WorkerStatus) -> None:
        """A heart-beat. Its own time is kept for display; staleness goes by our clock."""
        now = self._clock()
        known = self._workers.get(status.name)
        self._workers[status.name] = status
        self._heard[status.name] = now
        del self._sent[status.name]
        if known is None or _traits(known) != _traits(status) or now - self._forgotten > FRESH:
            self._forget()
        counts = self._counts.setdefault(status.name, deque())
        counts.append((now, status.requests, status.tokens))
        while len(counts) > 2 and counts[1][0] <= now - RATE_OVER:
            counts.popleft()

    def goodbye(self, name: str, reason: str) -> None:
        """A worker has ended, by its own word or its supervisor's."""
        known = self._workers.pop(name, None)
        self._heard.pop(name, None)
        self._counts.pop(name, None)
        del self._sent[name]
        self._forget()
        if known is not None:
            self._lost(name, reason)

    def resume(self) -> None:
        """The bus was away, and heart-beats with it: their silence counts from now."""
        now = self._clock()
        self._heard = dict.fromkeys(self._heard, now)

    def sweep(self) -> None:
        """Mark the silent as unhealthy, drop those silent for long."""
        now = self._clock()
        for name, heard in list(self._heard.items()):
            status = self._workers[name]
            if now - heard > DROP_AFTER:
                del self._workers[name], self._heard[name], self._counts[name], self._sent[name]
                self._lost(name, f"was not heard of for {DROP_AFTER:.0f} s")
            elif now - heard > STALE_AFTER and status.healthy:
                self._workers[name] = msgspec.structs.replace(status, healthy=False)
                self._forget()
                self._lost(name, "stopped answering")

    def workers(self) -> Sequence[WorkerStatus]:
        return [self._workers[name] for name in sorted(self._workers)]

    def traffic(self) -> Traffic:
        """Rates between the first and the last heart-beat of the last seconds."""
        requests = tokens = 0.0
        for worker in self._healthy():
            first, last = self._counts[worker.name][0], self._counts[worker.name][-1]
            seconds = last[0] - first[0]
            if seconds > 0.0:
                requests += (last[1] - first[1]) / seconds
                tokens += (last[2] - first[2]) / seconds
        return Traffic(requests=requests, tokens=tokens)

    def model_status(self, name: str) -> ModelStatus:
        known = [model for worker in self._healthy() for model in worker.models if model.name == name]
        return min(known, key=lambda model: _ORDER[model.state], default=ModelStatus(name=name, state="available"))

    def place(self, route: Route, bundle: str, model: str, key: str | None = None) -> Place | None:
        """Where work is best published; ``None``: no worker can do it."""
        return place(self._fit(route, bundle, model), key, model, self._sent.__getitem__)

    def peers(self, lane: Lane) -> int:
        """How many healthy workers take from the queue of a lane."""
        return sum(lane_of(worker) == lane for worker in self._healthy())

    def sent(self, worker: str) -> None:
        """Work has gone to a worker's own queue."""
        self._sent[worker] += 1

    def _fit(self, route: Route, bundle: str, model: str) -> Fit:
        key = (route, bundle, model)
        found = self._fits.get(key)
        if found is None:
            if len(self._fits) >= MOST_FITS:
                self._fits.clear()  # callers may name machine profiles of their own
            able = (
                worker
                for worker in self._healthy()
                if worker.pool == route.pool and worker.bundle == bundle and route.allows(worker.machine_profile)
            )
            found = self._fits[key] = fit(able, model)
        return found

    def _forget(self) -> None:
        self._fits.clear()
        self._forgotten = self._clock()

    def _healthy(self) -> Iterable[WorkerStatus]:
        return (worker for worker in self._workers.values() if worker.healthy)


def _traits(worker: WorkerStatus) -> object:
    """What decides whether a worker can be chosen at all."""
    lane = (worker.pool, worker.machine_profile, worker.bundle)
    return worker.healthy, lane, [(model.name, model.state) for model in worker.models], worker.room > 0

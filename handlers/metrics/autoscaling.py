"""What an autoscaler sizes the workers by: demand by lane, the queues, and how many machines pools want kept warm.

Names are the origin's (contract L). ``sie_gateway_pending_demand`` is one gateway's share and is summed over gateways;
the other series are the same at every gateway, so their maximum is taken. Labels are the operator's: pools, machine
profiles, bundles; no model, and nothing of a client's.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engines.protocol.lanes import LaneLoad
from engines.protocol.pools import PoolRecord, status, warm_floor

from ..services import Services
from .demand import OTHER, Want

LANE = ("pool", "machine_profile", "bundle")


class Autoscaling(Collector):
    """The signals of one gateway, as of the last ``refresh``."""

    def __init__(self, services: Services, clock: Callable[[], float] = time.time) -> None:
        self._services = services
        self._clock = clock
        self._loads: Sequence[LaneLoad] = ()

    async def refresh(self) -> None:
        """Ask the bus for what its queues hold."""
        self._loads = await self._services.lanes.load()

    def collect(self) -> Iterator[Metric]:
        now = self._clock()
        pools = [record for record in self._services.pools.all() if not record.expired(now)]
        yield _family("pending_demand", "Requests that run, wait, or found no worker lately", LANE, self._demand(pools))
        for name, text, attribute in (
            ("lane_queue_depth", "Requests that wait in the queue of a lane, of all gateways", "queued"),
            ("lane_unacknowledged", "Requests that workers of a lane have not settled", "unacknowledged"),
        ):
            known = {_lane(load): getattr(load, attribute) for load in self._loads}
            yield _family(name, text, LANE, {lane: count for lane, count in known.items() if count is not None})
        yield from self._pools(pools, now)

    def _demand(self, pools: Iterable[PoolRecord]) -> Counter[tuple[str, ...]]:
        demand: Counter[tuple[str, ...]] = Counter()
        for load in self._loads:
            demand[_lane(load)] += load.open
        profiles = self._profiles(pools)
        for want, count in self._services.metrics.demand.refused().items():
            profile = profiles.get(want.machine_profile.lower(), OTHER)
            demand[want._replace(machine_profile=profile)] += count
        return demand

    def _profiles(self, pools: Iterable[PoolRecord]) -> dict[str, str]:
        """The machine profiles that there are, by their name in lower case; the empty one means any."""
        workers = self._services.cluster.workers()
        names = [*(profile for record in pools for profile in record.spec.gpus)]
        names += [*(load.machine_profile for load in self._loads), *(worker.machine_profile for worker in workers)]
        return {name.lower(): name for name in ("", *names, *self._services.settings.gpu_types)}

    def _pools(self, records: Iterable[PoolRecord], now: float) -> Iterator[Metric]:
        """What the pools that were created ask for and have."""
        floors: dict[tuple[str, ...], int] = {}
        leased: dict[tuple[str, ...], int] = {}
        pinned: dict[tuple[str, ...], int] = {}
        loaded: dict[tuple[str, ...], int] = {}
        workers = self._services.cluster.workers()
        for record in records:
            spec = record.spec
            for profile, count in warm_floor(spec).items():
                floors[spec.name, spec.queue_pool, profile, spec.bundle or ""] = count
            state = status(record, workers, now)
            if state.state == "active":
                leased |= {(spec.name, profile): count for profile, count in spec.gpus.items() if count}
            there = {model.name for worker in state.workers for model in worker.models if model.state == "loaded"}
            pinned[spec.name,] = len(spec.pinned_models)
            loaded[spec.name,] = len(there.intersection(spec.pinned_models))
        floor = ("pool", "queue_pool", "machine_profile", "bundle")
        yield _family("pool_warm_floor", "Workers that a pool wants kept, however little there is to do", floor, floors)
        lease = ("pool", "machine_profile")
        yield _family("active_lease_gpus", "Workers that an active pool asked for and has", lease, leased)
        yield _family("pool_pinned_models", "Models that a pool wants kept loaded", ("pool",), pinned)
        yield _family("pool_pinned_models_loaded", "Those of them that a worker of it has", ("pool",), loaded)


def _lane(load: LaneLoad) -> Want:
    return Want(load.pool, load.machine_profile, load.bundle)


def _family(name: str, text: str, labels: Sequence[str], samples: Mapping[tuple[str, ...], int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"sie_gateway_{name}", text, labels=labels)
    for values, count in sorted(samples.items()):
        family.add_metric(values, float(count))
    return family

"""What an autoscaler reads: demand by lane, the queues, and the warm floors of pools."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from engines.protocol.cluster import ModelStatus, Route, Timeouts, WorkerStatus
from engines.protocol.lanes import LaneLoad
from engines.protocol.pools import PoolRecord, PoolSpec, warm_floor
from engines.protocol.work import EncodeWork
from handlers.metrics import Metered, Metrics
from handlers.metrics.autoscaling import Autoscaling
from handlers.metrics.demand import KEPT, Demand, Want
from handlers.services import Services
from handlers.settings import Settings
from tests.http.fakes import FakeCatalog, FakeDispatcher
from tests.pools.fakes import FakeCluster, MemoryPools, worker

Samples = dict[tuple[str, ...], float]


class FixedLanes:
    def __init__(self, *loads: LaneLoad) -> None:
        self.loads = loads

    async def load(self) -> Sequence[LaneLoad]:
        return self.loads


def gateway(
    *loads: LaneLoad, workers: Sequence[WorkerStatus] = (), pools: Sequence[PoolRecord] = (), **settings: Any
) -> Services:
    held = MemoryPools()
    held.records = {record.spec.name: record for record in pools}
    return Services(
        FakeCatalog(), FakeDispatcher(), FakeCluster(*workers), Settings(**settings), held, FixedLanes(*loads)
    )


async def signals(services: Services) -> dict[str, Samples]:
    """The samples of each family, by their label values in the order of their names' declaration."""
    collector = Autoscaling(services)
    await collector.refresh()
    return {
        family.name.removeprefix("sie_gateway_"): {
            tuple(sample.labels.values()): sample.value for sample in family.samples
        }
        for family in collector.collect()
    }


def pool(name: str, created: float | None = None, **spec: Any) -> PoolRecord:
    at = time.time() if created is None else created
    return PoolRecord(spec=PoolSpec(name=name, **spec), created_at=at, last_renewed=at)


async def refuse(services: Services, *routes: Route, bundle: str = "default") -> None:
    """Submit one request for each route to a dispatcher that has no worker for it."""
    metered = Metered(services.dispatcher, services.metrics)
    for number, route in enumerate(routes):
        work = EncodeWork(request_id=f"r{number}", model="org/vectors", bundle=bundle, items=[])
        with pytest.raises(Exception, match="no worker yet"):
            await metered.submit(work, route, Timeouts(1.0))


async def test_demand_is_what_is_open_and_what_was_refused() -> None:
    services = gateway(
        LaneLoad(pool="default", machine_profile="l4", bundle="default", open=7, queued=5, unacknowledged=2),
        LaneLoad(pool="batch", machine_profile="l4", bundle="default", queued=3, unacknowledged=0),
    )
    await refuse(services, *[Route(machine_profile="l4")] * 4, Route(), Route(pool="batch"))
    found = await signals(services)
    assert found["pending_demand"] == {
        ("batch", "", "default"): 1,
        ("batch", "l4", "default"): 0,
        ("default", "", "default"): 1,
        ("default", "l4", "default"): 11,
    }
    assert found["lane_queue_depth"] == {("default", "l4", "default"): 5, ("batch", "l4", "default"): 3}
    assert found["lane_unacknowledged"] == {("default", "l4", "default"): 2, ("batch", "l4", "default"): 0}


async def test_a_bus_that_does_not_tell_leaves_the_queues_out() -> None:
    """An old count would hold workers, and a zero would end them."""
    found = await signals(gateway(LaneLoad(pool="default", machine_profile="l4", bundle="default", open=1)))
    assert found["pending_demand"] == {("default", "l4", "default"): 1}
    assert found["lane_queue_depth"] == found["lane_unacknowledged"] == {}


async def test_refusals_count_for_the_first_machine_profile_that_would_do() -> None:
    services = gateway(gpu_types=("l4", "a100"))
    await refuse(services, Route(machine_profiles=("a100", "l4")), bundle="vision")
    assert (await signals(services))["pending_demand"] == {("default", "a100", "vision"): 1}


async def test_machine_profiles_that_a_client_made_up_are_one_series() -> None:
    services = gateway(workers=[worker("w1", "L4")], pools=[pool("mine", gpus={"h100": 1})], gpu_types=("a100-spot",))
    made_up = [Route(machine_profile=f"made-up-{number}") for number in range(2 * KEPT)]
    await refuse(services, Route(machine_profile="l4"), Route(machine_profile="H100"), *made_up)
    await refuse(services, Route(machine_profile="A100-spot"))
    demand = (await signals(services))["pending_demand"]
    assert demand.keys() == {("default", profile, "default") for profile in ("L4", "h100", "other")}
    assert demand["default", "other", "default"] == 2 * KEPT + 1


async def test_what_was_refused_long_ago_makes_room() -> None:
    now = 0.0
    demand = Demand(lambda: now)
    for number in range(KEPT):
        demand.add(Want("default", str(number), "default"))
    now = 61.0
    demand.add(Want("default", "l4", "default"))
    assert demand.refused() == {Want("default", "l4", "default"): 1}


def test_demand_is_forgotten_after_a_minute() -> None:
    now = 5.0
    demand = Demand(lambda: now)
    want = Want("default", "l4", "default")
    demand.add(want)
    now = 40.0
    for _ in range(50_000):
        demand.add(want)
    for at, count in ((40.5, 50_001), (64.9, 50_001), (66.0, 50_000), (99.9, 50_000), (101.0, 0), (500.0, 0)):
        now = at
        assert demand.refused() == {want: count}, at


@pytest.mark.parametrize(
    ("spec", "floor"),
    [
        ({"gpus": {"l4": 2}}, {}),
        ({"gpus": {"l4": 2}, "minimum_worker_count": 1}, {"l4": 1}),
        ({"gpus": {"l4": 1, "a100": 1}, "minimum_worker_count": 2}, {"a100": 1, "l4": 1}),
        ({"gpus": {"l4": 1, "a100": 1}, "minimum_worker_count": 4}, {"a100": 3, "l4": 1}),
        ({"gpus": {"a100": 0, "l4": 1}, "gpu_caps": {"a100": 0}, "minimum_worker_count": 3}, {"l4": 3}),
        ({"gpus": {"a": 0, "b": 0}, "gpu_caps": {"a": 1, "b": 1}, "minimum_worker_count": 9}, {"a": 1, "b": 1}),
        ({"gpus": {"l4": 1}, "pinned_models": ("org/chat",)}, {"l4": 1}),
        ({"gpus": {"l4": 0}, "pinned_models": ("org/chat",), "minimum_worker_count": 2}, {"l4": 2}),
        ({"gpus": {"l4": 0}, "gpu_caps": {"l4": 0}, "pinned_models": ("org/chat",)}, {}),
    ],
)  # fmt: skip
def test_warm_floor(spec: dict[str, Any], floor: dict[str, int]) -> None:
    assert warm_floor(PoolSpec(name="p", **spec)) == floor


async def test_pools_tell_their_floor_and_their_pinned_models_without_naming_them() -> None:
    models = [ModelStatus(name="org/chat", state="loaded"), ModelStatus(name="org/vectors", state="loading")]
    found = await signals(
        gateway(
            workers=[worker("w1", "l4", models=models), worker("w2", "a100", pool="batch")],
            pools=[
                pool("warm", gpus={"l4": 1}, minimum_worker_count=2, pinned_models=("org/chat", "org/vectors")),
                pool("cold", queue_pool="batch", bundle="vision", gpus={"a100": 1}),
                pool("wants", gpus={"l4": 2, "h100": 0}),
                pool("gone", created=0.0, gpus={"l4": 1}, minimum_worker_count=4),
            ],
        )
    )
    assert found["active_lease_gpus"] == {("warm", "l4"): 1}
    assert found["pool_warm_floor"] == {("warm", "default", "l4", ""): 2}
    assert found["pool_pinned_models"] == {("warm",): 2, ("cold",): 0, ("wants",): 0}
    assert found["pool_pinned_models_loaded"] == {("warm",): 1, ("cold",): 0, ("wants",): 0}


def test_the_refusals_of_a_gateway_start_at_none() -> None:
    assert Metrics().demand.refused() == {}

"""``/health`` and the rates: what heart-beats tell, and what the dispatcher has open."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from engines.dispatcher.registry import Registry
from engines.protocol.cluster import ModelStatus, Route, Timeouts, WorkerStatus
from generated.sie import models
from tests.bus.conftest import MODEL, collect, generate, until
from tests.pools.fakes import World, worker


def test_health_lists_all_workers_and_counts_the_healthy() -> None:
    loaded = [ModelStatus(name="a", state="loaded"), ModelStatus(name="b", state="failed", last_error="no")]
    world = World(
        worker("w1", gpu_count=2, models=loaded, queue_depth=3),
        worker("w2", "h100", gpu_count=1, models=[ModelStatus(name="a", state="loading")], queue_depth=4),
        worker("w3", "t4", healthy=False, gpu_count=8),
        gpu_types=("l4", "h100", "a100"),
    )
    with world.client() as http:
        body = http.get("/health").json()
    msgspec.convert(body, models.HealthResponse)
    assert (body["status"], body["type"]) == ("healthy", "gateway")
    assert body["configured_gpu_types"] == ["l4", "h100", "a100"]
    assert body["live_gpu_types"] == ["h100", "l4"]
    assert body["cluster"] == {"worker_count": 2, "gpu_count": 3, "models_loaded": 1, "total_qps": 0.0}
    assert [(one["name"], one["healthy"], one["ready_gpu_slots"]) for one in body["workers"]] == [
        ("w1", True, 2),
        ("w2", True, 1),
        ("w3", False, 0),
    ]
    assert body["models"] == [
        {"name": "a", "state": "loaded", "worker_count": 2, "gpu_types": ["h100", "l4"], "total_queue_depth": 7},
        {"name": "b", "state": "failed", "worker_count": 1, "gpu_types": ["l4"], "total_queue_depth": 3},
    ]


def test_without_a_healthy_worker_the_cluster_is_degraded_and_answers_200() -> None:
    with World(worker("w", healthy=False)).client() as http:
        response = http.get("/health")
    assert (response.status_code, response.json()["status"]) == (200, "degraded")


def test_rates_are_those_of_the_last_seconds() -> None:
    now = 0.0
    registry = Registry(lambda name, reason: None, lambda: now)
    assert registry.traffic().requests == 0.0
    for second in range(20):
        now = float(second)
        registry.beat(WorkerStatus(name="a", requests=10 * second, tokens=100 * second))
        registry.beat(WorkerStatus(name="b", requests=5, tokens=0))
    assert registry.traffic().requests == pytest.approx(10.0)
    assert registry.traffic().tokens == pytest.approx(100.0)
    registry.goodbye("a", "has shut down")
    assert registry.traffic().requests == 0.0


async def test_open_generations_are_told_until_they_end(cluster_of: Callable[..., object]) -> None:
    async with cluster_of() as cluster:  # type: ignore[attr-defined]
        assert cluster.dispatcher.pending_generations() == []
        work = generate("slow:60", stream=True)
        answer = await cluster.dispatcher.submit(work, Route(), Timeouts(60.0))
        (group,) = cluster.dispatcher.pending_generations()
        assert (group.model, group.pool, group.count, group.waiting_first_chunk) == (MODEL, "default", 1, 1)
        await until(lambda: cluster.dispatcher.pending_generations()[0].active_streams == 1)
        (group,) = cluster.dispatcher.pending_generations()
        assert (group.waiting_first_chunk, group.republished) == (0, 0)
        assert group.oldest_ms > 0
        await collect(answer)
        assert cluster.dispatcher.pending_generations() == []
        await until(lambda: [one.requests for one in cluster.dispatcher.workers()] == [1])
        assert cluster.dispatcher.workers()[0].tokens == 60

"""What heart-beats make of the cluster's view."""

from __future__ import annotations

import pytest

from engines.bus.subjects import Lane
from engines.dispatcher.registry import DROP_AFTER, FRESH, STALE_AFTER, Registry
from engines.dispatcher.routing import Place
from engines.protocol.cluster import ModelState, ModelStatus, Route, WorkerStatus


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def worker(name: str, *, state: ModelState | None = None, queue: int = 0, profile: str = "cpu") -> WorkerStatus:
    models = [ModelStatus(name="m", state=state)] if state else []
    return WorkerStatus(name=name, models=models, queue_depth=queue, machine_profile=profile)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lost() -> list[str]:
    return []


@pytest.fixture
def registry(clock: Clock, lost: list[str]) -> Registry:
    return Registry(lambda name, _: lost.append(name), clock)


def test_a_silent_worker_is_unhealthy_then_dropped(registry, clock, lost):
    registry.beat(worker("w"))
    clock.now = STALE_AFTER + 0.1
    registry.sweep()
    registry.sweep()
    assert lost == ["w"]
    assert [one.healthy for one in registry.workers()] == [False]
    assert registry.place(Route(), "default", "m") is None
    clock.now = DROP_AFTER + 0.1
    registry.sweep()
    assert registry.workers() == []


def test_a_worker_that_is_heard_again_is_healthy_again(registry, clock):
    registry.beat(worker("w"))
    clock.now = STALE_AFTER + 0.1
    registry.sweep()
    registry.beat(worker("w"))
    assert [one.healthy for one in registry.workers()] == [True]


def test_goodbye_removes_a_worker_once(registry, lost):
    registry.beat(worker("w"))
    registry.goodbye("w", "ended")
    registry.goodbye("w", "ended")
    assert registry.workers() == []
    assert lost == ["w"]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], "available"),
        (["failed"], "failed"),
        (["failed", "loading"], "loading"),
        (["failed", "loaded", "loading"], "loaded"),
        ([None, "failed"], "failed"),
    ],
)
def test_the_state_of_a_model_is_the_best_of_its_workers(registry, states, expected):
    for index, state in enumerate(states):
        registry.beat(worker(f"w{index}", state=state))
    assert registry.model_status("m").state == expected


def test_work_goes_to_the_lane_with_the_model_loaded_then_to_the_least_loaded(registry):
    registry.beat(worker("a", queue=0, profile="cpu"))
    registry.beat(worker("b", queue=9, profile="gpu", state="loaded"))
    assert registry.place(Route(), "default", "m") == Place(Lane("default", "gpu", "default"))
    registry.beat(worker("b", queue=9, profile="gpu"))
    assert registry.place(Route(), "default", "m") == Place(Lane("default", "cpu", "default"))
    assert registry.place(Route(machine_profile="GPU"), "default", "m") == Place(Lane("default", "gpu", "default"))
    assert registry.place(Route(), "other", "m") is None
    gpu = Place(Lane("default", "gpu", "default"))
    assert registry.place(Route(machine_profiles=("h100", "GPU")), "default", "m") == gpu
    assert registry.place(Route(machine_profiles=("h100",)), "default", "m") is None


def test_load_that_was_told_lately_is_enough_and_what_changes_a_choice_counts_at_once(registry, clock):
    clock.now = 1.0
    registry.beat(worker("a", profile="cpu"))
    registry.beat(worker("b", queue=5, profile="gpu"))
    assert registry.place(Route(), "default", "m") == Place(Lane("default", "cpu", "default"))
    registry.beat(worker("a", queue=9, profile="cpu"))
    assert registry.place(Route(), "default", "m") == Place(Lane("default", "cpu", "default"))
    clock.now += 2 * FRESH
    registry.beat(worker("a", queue=9, profile="cpu"))
    assert registry.place(Route(), "default", "m") == Place(Lane("default", "gpu", "default"))
    registry.beat(worker("a", queue=9, profile="cpu", state="loaded"))
    assert registry.place(Route(), "default", "m") == Place(Lane("default", "cpu", "default"))


def test_a_worker_that_was_silent_for_long_is_lost_once_more_so_that_its_queue_goes(registry, clock, lost):
    registry.beat(worker("w"))
    clock.now = STALE_AFTER + 0.1
    registry.sweep()
    clock.now = DROP_AFTER + 0.1
    registry.sweep()
    assert lost == ["w", "w"]

"""Which worker work goes to: the least loaded with the model loaded first, one and the same for one key."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.bus.subjects import Lane
from engines.dispatcher.routing import Place, fit, place, rendezvous
from engines.protocol.cluster import ModelStatus, WorkerStatus

LANE = Lane("default", "cpu", "default")
NAMES = st.lists(st.text("abcdefgh0123-", min_size=1, max_size=8), min_size=2, max_size=12, unique=True)
KEYS = [f"session-{number}" for number in range(2000)]


def worker(name: str, *, loaded: bool = True, queue: int = 0, room: int = 8, profile: str = "cpu") -> WorkerStatus:
    models = [ModelStatus(name="m", state="loaded")] if loaded else []
    return WorkerStatus(name=name, models=models, queue_depth=queue, room=room, machine_profile=profile)


def chosen(workers: list[WorkerStatus], key: str | None = None, sent: Counter[str] | None = None) -> Place | None:
    return place(fit(workers, "m"), key, "m", (sent or Counter()).__getitem__)


@given(NAMES, st.text(max_size=20), st.randoms())
def test_the_order_in_which_workers_are_known_does_not_matter(names, key, random):
    shuffled = list(names)
    random.shuffle(shuffled)
    assert names[rendezvous(key, names)] == shuffled[rendezvous(key, shuffled)]


@given(NAMES, st.text(max_size=20), st.data())
def test_a_key_moves_only_when_its_own_worker_goes(names, key, data):
    gone = data.draw(st.sampled_from(names))
    before = names[rendezvous(key, names)]
    left = [name for name in names if name != gone]
    after = left[rendezvous(key, left)]
    assert before in {after, gone}


@given(NAMES, st.text(max_size=20), st.text("xyz", min_size=1, max_size=8))
def test_a_key_moves_only_to_the_worker_that_comes(names, key, new):
    before = names[rendezvous(key, names)]
    more = [*names, new]
    assert more[rendezvous(key, more)] in {before, new}


@pytest.mark.parametrize("count", [2, 5, 10])
def test_keys_are_spread_evenly_and_one_of_n_moves_when_one_of_n_goes(count):
    names = [f"worker-{number}" for number in range(count)]
    homes = {key: names[rendezvous(key, names)] for key in KEYS}
    share = len(KEYS) / count
    assert all(0.7 * share < homes_of < 1.3 * share for homes_of in Counter(homes.values()).values())
    left = names[:-1]
    moved = sum(left[rendezvous(key, left)] != home for key, home in homes.items())
    assert moved == Counter(homes.values())[names[-1]]


def test_one_key_has_one_worker_and_many_keys_have_all():
    workers = [worker(name) for name in "abc"]
    homes = {key: chosen(workers, key) for key in KEYS[:100]}
    assert {found.worker for found in homes.values()} == {"a", "b", "c"}
    assert homes == {key: chosen(workers[::-1], key) for key in homes}


def test_a_key_goes_to_a_worker_that_has_the_model_loaded():
    workers = [worker("a", loaded=False), worker("b"), worker("c", loaded=False)]
    assert {chosen(workers, key) for key in KEYS[:50]} == {Place(LANE, "b")}


def test_a_key_whose_worker_has_no_room_goes_to_the_lane():
    workers = [worker("a", room=0), worker("b", room=0)]
    assert {chosen(workers, key) for key in KEYS[:50]} == {Place(LANE)}


def test_work_without_a_key_goes_to_the_lane_whose_workers_all_have_the_model():
    assert chosen([worker("a"), worker("b")]) == Place(LANE)
    assert chosen([worker("a", loaded=False), worker("b", loaded=False)]) == Place(LANE)


def test_work_without_a_key_goes_to_the_least_loaded_of_the_few_that_have_the_model():
    workers = [worker("a", queue=3), worker("b", queue=1), worker("c", loaded=False)]
    assert chosen(workers) == Place(LANE, "b")
    assert chosen(workers, sent=Counter(b=3)) == Place(LANE, "a")


def test_what_was_sent_since_the_last_heart_beat_takes_room():
    workers = [worker("a", room=2), worker("b", loaded=False)]
    assert chosen(workers, sent=Counter(a=1)) == Place(LANE, "a")
    assert chosen(workers, sent=Counter(a=2)) == Place(LANE)


def test_a_single_worker_needs_no_queue_of_its_own():
    assert chosen([worker("a")], "key") == Place(LANE)
    assert chosen([]) is None


def test_lanes_are_told_apart_where_the_model_is_loaded_in_one():
    workers = [worker("a", profile="gpu", queue=9), worker("b", loaded=False)]
    assert chosen(workers) == Place(Lane("default", "gpu", "default"))

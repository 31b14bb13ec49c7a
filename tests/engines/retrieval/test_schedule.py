"""The waiting set by itself: nothing lost, nothing doubled, everyone in turn."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from engines.batching.schedule import Piece, Schedule


def pieces(request: str, lengths: list[int], group: str = "g") -> list[Piece]:
    return [Piece(request, i, length, None, group) for i, length in enumerate(lengths)]


def drain(schedule: Schedule, budget: int) -> list[list[Piece]]:
    batches = []
    while batch := schedule.take(budget):
        batches.append(batch)
    return batches


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5), st.lists(st.integers(1, 100), min_size=1, max_size=20)),
        st.tuples(st.just("drop"), st.integers(0, 5), st.just([])),
        st.tuples(st.just("take"), st.integers(1, 300), st.just([])),
    ),
    max_size=40,
)


@given(ACTIONS, st.booleans())
def test_every_piece_comes_out_once_or_is_dropped(actions: list[tuple[str, int, list[int]]], padded: bool) -> None:
    schedule = Schedule(padded=padded)
    waiting: Counter[tuple[str, int]] = Counter()
    count = 0

    def out(batch: list[Piece], budget: int) -> None:
        assert len({piece.group for piece in batch}) <= 1
        width = max(piece.length for piece in batch)
        cost = width * len(batch) if padded else sum(piece.length for piece in batch)
        assert cost <= budget or len(batch) == 1
        waiting.subtract((piece.request, piece.index) for piece in batch)

    for kind, number, lengths in actions:
        if kind == "add":
            fresh = [Piece(f"r{number}", count + i, length, None, length % 2) for i, length in enumerate(lengths)]
            count += len(lengths)
            schedule.add(fresh)
            waiting.update((piece.request, piece.index) for piece in fresh)
        elif kind == "drop":
            schedule.drop(f"r{number}")
            waiting = Counter({key: n for key, n in waiting.items() if key[0] != f"r{number}"})
        elif batch := schedule.take(number):
            out(batch, number)
        assert schedule.waiting == waiting.total()
    for batch in drain(schedule, 100):
        out(batch, 100)
    assert not any(waiting.values())
    assert schedule.waiting == schedule.waiting_tokens == 0


def test_requests_share_tokens_evenly_whatever_their_size() -> None:
    schedule = Schedule()
    schedule.add(pieces("large", [10] * 100, "a"))
    schedule.add(pieces("small", [10] * 10, "b"))
    served: Counter[str] = Counter()
    for _ in range(10):
        for piece in schedule.take(20):
            served[piece.request] += piece.length
    assert served["small"] == 100
    assert served["large"] == 100


def test_a_newcomer_owes_nothing_for_the_past() -> None:
    schedule = Schedule()
    schedule.add(pieces("old", [10] * 100, "a"))
    for _ in range(50):
        schedule.take(10)
    schedule.add(pieces("new", [10] * 100, "b"))
    turns = [schedule.take(10)[0].request for _ in range(10)]
    assert turns.count("new") in (5, 6), "neither waits for what the other had before"


def test_the_longest_of_a_request_goes_first_with_its_likes() -> None:
    schedule = Schedule()
    schedule.add(pieces("a", [10, 100, 99, 98, 12, 11]))
    assert [[piece.length for piece in batch] for batch in drain(schedule, 400)] == [[100, 99, 98], [12, 11, 10]]


def test_without_padding_lengths_mix_freely() -> None:
    schedule = Schedule(padded=False)
    schedule.add(pieces("a", [100, 10, 1]))
    assert [[piece.length for piece in batch] for batch in drain(schedule, 111)] == [[100, 10, 1]]

"""The state machine that puts the events of one request in order, without a bus."""

from __future__ import annotations

import asyncio

import pytest

from engines.dispatcher.answer import BUFFER, PendingAnswer, given_up
from engines.protocol.cluster import Timeouts
from engines.protocol.events import Admitted, AnyEvent, Completed, Delta, Failed, Missed, Timing, Usage

from .conftest import collect


def admitted(attempt: str, seq: int = 0, worker: str = "w1") -> Admitted:
    return Admitted(request_id="r", attempt_id=attempt, seq=seq, worker=worker)


def delta(attempt: str, seq: int, text: str = "x") -> Delta:
    return Delta(request_id="r", attempt_id=attempt, seq=seq, text=text)


def completed(attempt: str, seq: int) -> Completed:
    return Completed(request_id="r", attempt_id=attempt, seq=seq, usage=Usage(), timing=Timing())


def answer_of(ended: list[bool], timeouts: Timeouts | None = None) -> PendingAnswer:
    return PendingAnswer("r", timeouts or Timeouts(60.0), lambda _, running: ended.append(running))


async def outcome(*events: AnyEvent) -> tuple[list[str], list[bool]]:
    """What the reader sees (texts, codes or names of the kinds), and how ``ended`` was called."""
    ended: list[bool] = []
    answer = answer_of(ended)
    for event in events:
        answer.feed(event)
    if not ended:
        answer.fail("overall_timeout", "the test is over")
    seen = []
    for event in await collect(answer):
        match event:
            case Delta():
                seen.append(event.text)
            case Failed():
                seen.append(event.code)
            case _:
                seen.append(type(event).__name__.lower())
    return seen, ended


CASES = {
    "whole": ([admitted("a"), delta("a", 1), completed("a", 2)], ["admitted", "x", "completed"]),
    "duplicates are dropped": (
        [admitted("a"), admitted("a"), delta("a", 1), delta("a", 1), completed("a", 2)],
        ["admitted", "x", "completed"],
    ),
    "what comes before its turn waits": (
        [admitted("a"), delta("a", 2, "y"), completed("a", 3), delta("a", 1, "x")],
        ["admitted", "x", "y", "completed"],
    ),
    "a late admission is waited for": (
        [delta("a", 1), completed("a", 2), admitted("a")],
        ["admitted", "x", "completed"],
    ),
    "a gap of an attempt that is not heard matters to nobody": (
        [admitted("b"), admitted("a"), delta("a", 2), delta("b", 1, "y"), completed("b", 2)],
        ["admitted", "y", "completed"],
    ),
    "the second attempt takes over before any output": (
        [admitted("a"), admitted("b"), delta("b", 1, "y"), completed("b", 2)],
        ["admitted", "y", "completed"],
    ),
    "the first attempt with output owns the answer": (
        [admitted("a"), admitted("b"), delta("a", 1), delta("b", 1, "y"), completed("b", 2), completed("a", 2)],
        ["admitted", "x", "completed"],
    ),
    "a late attempt is not heard": (
        [admitted("a"), delta("a", 1), admitted("b"), completed("a", 2), completed("b", 1)],
        ["admitted", "x", "completed"],
    ),
    "nothing follows the end": ([admitted("a"), completed("a", 1), delta("a", 2)], ["admitted", "completed"]),
}


@pytest.mark.parametrize("case", CASES)
async def test_events_of_attempts(case):
    events, expected = CASES[case]
    seen, ended = await outcome(*events)
    assert seen == expected
    assert len(ended) == 1


async def test_the_work_is_cancelled_only_when_it_may_still_run():
    assert (await outcome(admitted("a"), completed("a", 1)))[1] == [False]
    assert (await outcome(admitted("a"), delta("a", 1)))[1] == [True]


async def test_missing_events_are_asked_for_at_once_and_given_up_after_a_while(monkeypatch):
    monkeypatch.setattr("engines.dispatcher.answer.GAP_PATIENCE", 0.05)
    answer = answer_of([])
    answer.feed(admitted("a"))
    assert answer.missed() is None
    assert not answer.incomplete
    answer.feed(delta("a", 1))
    answer.feed(delta("a", 3))
    assert answer.incomplete
    assert answer.missed() == Missed("r", {"a": 2}, owned=True)
    assert answer.missed() is None  # not yet again
    answer.look()
    await asyncio.sleep(0.1)
    assert answer.missed() is None
    last = (await collect(answer))[-1]
    assert isinstance(last, Failed)
    assert last.code == "transport_failure"


async def test_a_silent_answer_is_asked_for_ever_less_often(monkeypatch):
    monkeypatch.setattr("engines.dispatcher.answer.FIRST_LOOK", 0.0)
    answer = answer_of([])
    assert answer.missed() == Missed("r", {}, owned=False)
    answer.feed(admitted("a"))
    answer.look()
    assert answer.missed() == Missed("r", {"a": 1}, owned=False)
    answer.feed(admitted("b"))
    answer.feed(delta("b", 1))
    answer.look()
    assert answer.missed() == Missed("r", {"b": 2}, owned=True)
    answer.feed(completed("b", 2))
    answer.look()
    assert answer.missed() is None


async def test_an_end_that_is_being_fetched_is_neither_asked_for_nor_lost(monkeypatch):
    monkeypatch.setattr("engines.dispatcher.answer.FIRST_LOOK", 0.0)
    answer = answer_of([])
    answer.feed(admitted("a"))
    answer.fetch_begins()
    answer.look()
    assert answer.missed() is None
    lost = Failed(request_id="r", attempt_id="a", seq=1, code="transport_failure", message="lost")
    answer.feed(lost)
    answer.fetch_ended()
    assert answer.missed() == Missed("r", {"a": 1}, owned=False), "it may have come in part only"
    answer.feed(completed("a", 1))
    assert [type(event) for event in await collect(answer)] == [Admitted, Completed]


async def test_a_lost_worker_fails_what_it_has_begun():
    ended: list[bool] = []
    answer = answer_of(ended)
    answer.feed(admitted("a", worker="w1"))
    answer.lose_worker("w1", "died")
    assert ended == []
    answer.feed(delta("a", 1))
    answer.lose_worker("w2", "died")
    assert ended == []
    answer.lose_worker("w1", "died")
    last = (await collect(answer))[-1]
    assert isinstance(last, Failed)
    assert last.code == "transport_failure"
    assert "w1 died" in last.message


async def test_closing_twice_cancels_once_and_ends_a_waiting_reader():
    ended: list[bool] = []
    answer = answer_of(ended)
    reader = asyncio.create_task(collect(answer))
    await asyncio.sleep(0)
    await answer.aclose()
    await answer.aclose()
    assert await reader == []
    assert ended == [True]


async def test_the_clock_of_the_first_chunk_starts_with_admission():
    answer = answer_of([], Timeouts(60.0, first_chunk=0.05))
    reader = asyncio.create_task(collect(answer))
    await asyncio.sleep(0.15)
    assert not reader.done()
    answer.feed(admitted("a"))
    last = (await reader)[-1]
    assert isinstance(last, Failed)
    assert last.code == "first_chunk_timeout"


async def test_a_slow_reader_is_no_timeout():
    answer = answer_of([], Timeouts(60.0, first_chunk=0.05, inter_chunk=0.05))
    for event in (admitted("a"), delta("a", 1), completed("a", 2)):
        answer.feed(event)
    await asyncio.sleep(0.2)
    assert [type(event) for event in await collect(answer)] == [Admitted, Delta, Completed]


async def test_loading_a_model_is_not_counted_against_the_limits_of_its_request():
    answer = PendingAnswer("r", Timeouts(0.1), lambda *_: None, patience=60.0)
    reader = asyncio.create_task(collect(answer))
    await asyncio.sleep(0.3)
    assert not reader.done()
    answer.feed(admitted("a"))
    last = (await reader)[-1]
    assert isinstance(last, Failed)
    assert last.code == "overall_timeout"


async def test_after_a_new_publication_attempts_at_the_old_one_are_not_heard():
    ended: list[bool] = []
    answer = answer_of(ended)
    answer.feed(admitted("0-a"))
    answer.restart()
    answer.feed(delta("0-a", 1, "old"))
    answer.feed(Failed(request_id="r", attempt_id="0-b", code="cancelled", message="late"))
    answer.feed(admitted("1-c", worker="w2"))
    answer.feed(delta("1-c", 1, "new"))
    answer.feed(completed("1-c", 2))
    seen = await collect(answer)
    assert [type(event) for event in seen] == [Admitted, Delta, Completed]
    assert isinstance(seen[1], Delta)
    assert seen[1].text == "new"
    assert ended == [False]


async def test_work_for_one_worker_that_does_not_begin_in_time_is_tried_elsewhere():
    asked: list[PendingAnswer] = []

    def late(answer: PendingAnswer) -> bool:
        asked.append(answer)
        answer.restart()
        return len(asked) == 1

    answer = PendingAnswer("r", Timeouts(60.0, first_chunk=0.05), lambda *_: None, 0.0, late)
    answer.direct = True
    reader = asyncio.create_task(collect(answer))
    while not asked:  # noqa: ASYNC110  # the answer's own timer calls it
        await asyncio.sleep(0.01)
    answer.feed(admitted("1-b"))
    answer.feed(completed("1-b", 1))
    assert [type(event) for event in await reader] == [Admitted, Completed]
    assert asked == [answer]


async def test_what_waits_for_a_slow_reader_is_bounded_and_loses_nothing():
    answer = answer_of([])
    answer.feed(admitted("a"))
    count = 4 * BUFFER
    for seq in range(1, count + 1):
        choice = seq % 2
        answer.feed(Delta(request_id="r", attempt_id="a", seq=seq, choice=choice, text=f"{seq} ", tokens=1))
    finish = Delta(request_id="r", attempt_id="a", seq=count + 1, text="", finish_reason="stop")
    answer.feed(finish)
    answer.feed(completed("a", count + 2))
    seen = await collect(answer)
    assert len(seen) == BUFFER + 1
    deltas = [event for event in seen if isinstance(event, Delta)]
    for choice in (0, 1):
        text = "".join(event.text for event in deltas if event.choice == choice)
        assert text.split() == [str(seq) for seq in range(1, count + 1) if seq % 2 == choice]
    assert sum(event.tokens for event in deltas) == count
    assert [event.finish_reason for event in deltas if event.choice == 0][-1] == "stop"


@pytest.mark.parametrize("patience", [0.0, 5.0])
async def test_work_whose_model_is_loaded_again_may_take_longer_once(patience: float) -> None:
    """Its limits count from the next admission; the silence that follows is not excused a second time."""
    asked: list[str] = []

    def loading(answer: PendingAnswer) -> float:
        asked.append(answer.request_id)
        return 0.3

    answer = PendingAnswer("r", Timeouts(0.1), lambda *_: None, patience, loading=loading)
    answer.feed(admitted("0-a"))
    reading = asyncio.create_task(collect(answer))
    await asyncio.sleep(0.2)
    assert not reading.done()
    answer.feed(admitted("0-b", worker="w2"))
    first, failed = await reading
    assert isinstance(first, Admitted)
    assert isinstance(failed, Failed)
    assert (failed.code, asked) == ("overall_timeout", ["r"])


async def test_work_whose_model_is_there_has_its_own_time() -> None:
    answer = PendingAnswer("r", Timeouts(0.05), lambda *_: None)
    answer.feed(admitted("0-a"))
    assert isinstance((await collect(answer))[-1], Failed)


async def test_work_that_never_got_its_model_is_not_waited_for_twice() -> None:
    answer = PendingAnswer("r", Timeouts(0.05), lambda *_: None, 0.05, loading=lambda _: 60.0)
    assert isinstance((await collect(answer))[-1], Failed)


async def test_a_gap_of_a_publication_before_the_last_does_not_fail_the_answer(monkeypatch):
    monkeypatch.setattr("engines.dispatcher.answer.GAP_PATIENCE", 0.0)
    answer = answer_of([])
    answer.feed(admitted("0-a"))
    answer.feed(delta("0-a", 2))
    answer.restart()
    await asyncio.sleep(0.01)
    answer.look()
    assert answer.missed() is not None
    answer.feed(admitted("1-b"))
    answer.feed(completed("1-b", 1))
    assert [type(event) for event in await collect(answer)] == [Admitted, Completed]


async def test_a_gap_of_an_attempt_whose_worker_is_gone_does_not_fail_the_answer(monkeypatch):
    monkeypatch.setattr("engines.dispatcher.answer.GAP_PATIENCE", 0.0)
    answer = answer_of([])
    answer.feed(admitted("a", worker="w1"))
    answer.feed(delta("a", 2))
    answer.lose_worker("w2", "died")
    assert answer.incomplete
    answer.lose_worker("w1", "died")
    await asyncio.sleep(0.01)
    answer.look()
    assert answer.missed() is not None
    answer.feed(admitted("b", worker="w2"))
    answer.feed(completed("b", 1))
    assert [type(event) for event in await collect(answer)] == [Admitted, Completed]


async def test_that_work_was_given_up_is_heard_when_the_end_being_fetched_does_not_come():
    answer = answer_of([])
    answer.feed(admitted("0-a"))
    answer.fetch_begins()
    answer.feed(Failed(request_id="r", attempt_id=given_up(0), code="inference_error", message="given up"))
    assert not answer.done
    answer.fetch_ended()
    assert answer.missed() is None
    last = (await collect(answer))[-1]
    assert isinstance(last, Failed)
    assert last.code == "inference_error"


async def test_that_work_was_given_up_does_not_matter_when_its_end_comes():
    answer = answer_of([])
    answer.feed(admitted("0-a"))
    answer.fetch_begins()
    answer.feed(Failed(request_id="r", attempt_id=given_up(0), code="inference_error", message="given up"))
    answer.fetch_ended()
    answer.feed(completed("0-a", 1))
    assert answer.missed() is None
    assert [type(event) for event in await collect(answer)] == [Admitted, Completed]


async def test_an_end_that_waits_to_be_fetched_is_no_silence():
    answer = answer_of([], Timeouts(60.0, first_chunk=0.05))
    answer.feed(admitted("a"))
    reader = asyncio.create_task(collect(answer))
    await asyncio.sleep(0)
    answer.fetch_begins()
    await asyncio.sleep(0.15)
    assert not reader.done()
    answer.fetch_ended()
    answer.feed(completed("a", 1))
    assert [type(event) for event in await reader] == [Admitted, Completed]


async def test_a_gap_that_could_not_be_asked_for_during_a_fetch_is_asked_for_after_it(monkeypatch):
    monkeypatch.setattr("engines.dispatcher.answer.GAP_PATIENCE", 0.1)
    answer = answer_of([])
    answer.feed(admitted("a"))
    answer.feed(delta("a", 2))
    answer.fetch_begins()
    await asyncio.sleep(0.2)
    answer.fetch_ended()
    answer.feed(completed("a", 3))
    assert answer.missed() == Missed("r", {"a": 1}, owned=False)
    answer.feed(delta("a", 1))
    assert [type(event) for event in await collect(answer)] == [Admitted, Delta, Delta, Completed]

"""An answer whose last events are lost on the way is a failure soon, not a timeout."""

from __future__ import annotations

from typing import Any

import pytest
from nats.aio.msg import Msg

from engines.bus.ends import MOST_ASKED, REMEMBERED, Ends, Silent, questions
from engines.dispatcher import dispatcher
from engines.protocol.cluster import Route, Timeouts
from engines.protocol.events import Admitted, AnyEvent, Completed, Failed, Refused, Timing, Usage

from .conftest import ask, collect, generate, until


def completed(request_id: str = "r", attempt: str = "a", seq: int = 2) -> Completed:
    return Completed(request_id=request_id, attempt_id=attempt, seq=seq, usage=Usage(), timing=Timing())


async def told(ends: Ends, sent: list[tuple[str, AnyEvent]], *silent: Silent) -> list[tuple[str, str, int]]:
    """What a worker says when it is asked."""
    sent.clear()
    for data in questions("reply", silent):
        await ends.asked(Msg(_client=None, data=data))  # type: ignore[arg-type]  # only its data is read
    return [(event.request_id, event.attempt_id, event.seq) for subject, event in sent if subject == "reply"]


async def test_only_ends_that_were_not_heard_are_told() -> None:
    sent: list[tuple[str, AnyEvent]] = []
    ends = Ends(lambda subject, event: sent.append((subject, event)))
    ends.add(completed())
    assert await told(ends, sent, Silent("r", {"a": 1})) == [("r", "a", 1)]
    assert isinstance(sent[0][1], Failed)
    assert sent[0][1].code == "transport_failure"
    # nothing of it was heard, or only of an attempt of another worker
    assert await told(ends, sent, Silent("r", {})) == [("r", "a", 0)]
    assert await told(ends, sent, Silent("r", {"b": 5})) == [("r", "a", 0)]
    # all of it was heard; it is not ours
    assert await told(ends, sent, Silent("r", {"a": 3}), Silent("other", {})) == []


async def test_a_question_of_any_length_is_answered() -> None:
    sent: list[tuple[str, AnyEvent]] = []
    ends = Ends(lambda subject, event: sent.append((subject, event)))
    for number in range(REMEMBERED + 5):
        ends.add(completed(f"r{number}"))
    asked = [Silent(f"r{number}", {}) for number in range(REMEMBERED + 5)]
    assert len(list(questions("reply", asked))) == -(-len(asked) // MOST_ASKED)
    assert len(await told(ends, sent, *asked)) == REMEMBERED


@pytest.mark.parametrize("stream", [False, True])
async def test_an_end_that_is_lost_is_told_soon(cluster_of: Any, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    monkeypatch.setattr(dispatcher, "ASK_EVERY", 0.5)
    async with cluster_of() as cluster:
        answer = await cluster.dispatcher.submit(generate("block:1", stream=stream), Route(), Timeouts(600.0))
        events = aiter(answer)
        assert isinstance(await anext(events), Admitted)
        lost: list[bytes] = []
        with monkeypatch.context() as patched:
            patched.setattr(cluster.dispatcher, "_feed", lost.append)
            await until(lambda: len(lost) > 0)
        last = (await collect(answer))[-1]
        # its worker is known, so what was lost is sent again; where that comes too late, the caller can try again
        assert isinstance(last, Completed) or (last.code == "transport_failure" and last.retry_after)
        assert isinstance((await ask(cluster, "echo:2"))[-1], Completed)


async def test_an_answer_that_is_only_slow_is_left_alone(cluster_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "ASK_EVERY", 0.1)
    async with cluster_of() as cluster:
        last = (await ask(cluster, "block:2", stream=False))[-1]
        assert isinstance(last, Completed)


async def test_a_refusal_that_was_lost_is_told_as_well() -> None:
    sent: list[tuple[str, AnyEvent]] = []
    ends = Ends(lambda subject, event: sent.append((subject, event)))
    ends.add(Refused(request_id="r", attempt_id="0-a", reason="kv_budget"))
    assert await told(ends, sent, Silent("r", {})) == [("r", "0-a", 0)]
    assert isinstance(sent[0][1], Failed)
    assert (sent[0][1].code, sent[0][1].retry_after) == ("transport_failure", 1.0)

"""What a worker keeps of what it has sent."""

from __future__ import annotations

from engines.protocol.events import Admitted, AnyEvent, Completed, Delta, Timing, Usage
from engines.worker.sent import KEEP_S, Sent


def event(request: str, attempt: str, seq: int, *, last: bool = False) -> AnyEvent:
    if seq == 0:
        return Admitted(request_id=request, attempt_id=attempt)
    if last:
        return Completed(request_id=request, attempt_id=attempt, seq=seq, usage=Usage(), timing=Timing())
    return Delta(request_id=request, attempt_id=attempt, seq=seq)


def keep(sent: Sent, request: str, attempt: str, count: int, *, ends: bool = True, size: int = 1) -> None:
    for seq in range(count):
        data = bytes([seq]) * size
        sent.keep("to", event(request, attempt, seq, last=ends and seq == count - 1), data)


def test_what_is_missing_comes_again():
    sent = Sent()
    keep(sent, "r", "a", 4)
    assert sent.again("r", {"a": 2}, owned=True) == ("to", [b"\x02", b"\x03"])
    assert sent.again("r", {"a": 4}, owned=True) == ("to", [])
    assert sent.again("r", {}, owned=False) == ("to", [b"\x00", b"\x01", b"\x02", b"\x03"])
    assert sent.again("other", {}, owned=False) == ("", ())


def test_an_attempt_that_is_no_use_stays_here():
    sent = Sent()
    keep(sent, "r", "b", 3)
    assert sent.again("r", {"a": 2}, owned=True) == ("", ())
    assert sent.again("r", {"a": 2}, owned=False)[1] == [b"\x00", b"\x01", b"\x02"]


def test_the_latest_attempt_counts():
    sent = Sent()
    keep(sent, "r", "a", 2)
    keep(sent, "r", "b", 3, ends=False)
    assert sent.again("r", {"a": 1, "b": 2}, owned=False)[1] == [b"\x02"]


def test_what_has_ended_is_forgotten_after_a_while():
    now = [0.0]
    sent = Sent(clock=lambda: now[0])
    keep(sent, "old", "a", 2)
    keep(sent, "running", "a", 2, ends=False)
    now[0] = KEEP_S + 1
    keep(sent, "new", "a", 2)
    assert sent.again("old", {}, owned=False) == ("", ())
    assert len(sent.again("running", {}, owned=False)[1]) == 2
    assert len(sent.again("new", {}, owned=False)[1]) == 2


def test_size_is_bounded_and_nothing_is_sent_with_a_hole():
    sent = Sent(limit=100)
    keep(sent, "r", "a", 3, ends=False, size=30)
    keep(sent, "s", "a", 2, ends=False, size=30)
    # "r" was forgotten for "s"; what comes of it later has no beginning
    assert sent.again("r", {}, owned=False) == ("", ())
    sent.keep("to", event("r", "a", 3), b"x")
    assert sent.again("r", {"a": 1}, owned=True) == ("", ())
    assert sent.again("r", {"a": 3}, owned=True) == ("to", [b"x"])

"""What a worker keeps of what it has sent."""

from __future__ import annotations

from engines.bus import wire
from engines.protocol.events import Admitted, Completed, Delta, Failed, Refused, Timing, Usage, WireEvent
from engines.worker.sent import KEEP_S, REMEMBERED, Sent


def event(request: str, attempt: str, seq: int, *, last: bool = False) -> WireEvent:
    if seq == 0:
        return Admitted(request_id=request, attempt_id=attempt)
    if last:
        return Completed(request_id=request, attempt_id=attempt, seq=seq, usage=Usage(), timing=Timing())
    return Delta(request_id=request, attempt_id=attempt, seq=seq)


def keep(sent: Sent, request: str, attempt: str, count: int, *, ends: bool = True, size: int = 1) -> None:
    for seq in range(count):
        data = bytes([seq]) * size
        sent.keep("to", event(request, attempt, seq, last=ends and seq == count - 1), data)


def again(sent: Sent, request: str, seen: dict[str, int], *, owned: bool) -> list[bytes]:
    return [data for _, subject, events in sent.again(request, seen, owned) for data in events if subject == "to"]


def lost(sent: Sent, request: str, seen: dict[str, int], *, owned: bool) -> tuple[str, int]:
    """Attempt and number of the failure that is all there is to send."""
    (data,) = again(sent, request, seen, owned=owned)
    (failed,) = wire.decode_events(wire.pack([data]))
    assert isinstance(failed, Failed)
    assert (failed.request_id, failed.code, failed.retry_after) == (request, "transport_failure", 1.0)
    return failed.attempt_id, failed.seq


def test_what_is_missing_comes_again():
    sent = Sent()
    keep(sent, "r", "a", 4)
    assert again(sent, "r", {"a": 2}, owned=True) == [b"\x02", b"\x03"]
    assert again(sent, "r", {"a": 4}, owned=True) == []
    assert again(sent, "r", {}, owned=False) == [b"\x00", b"\x01", b"\x02", b"\x03"]
    assert again(sent, "other", {}, owned=False) == []


def test_an_attempt_that_is_no_use_stays_here():
    sent = Sent()
    keep(sent, "r", "b", 3)
    assert again(sent, "r", {"a": 2}, owned=True) == []
    assert again(sent, "r", {"a": 2}, owned=False) == [b"\x00", b"\x01", b"\x02"]


def test_a_second_attempt_does_not_hide_the_first():
    sent = Sent()
    keep(sent, "r", "a", 3)
    keep(sent, "r", "b", 2, ends=False)
    assert again(sent, "r", {"a": 1}, owned=True) == [b"\x01", b"\x02"]
    assert again(sent, "r", {"a": 2, "b": 1}, owned=False) == [b"\x02", b"\x01"]


def test_what_has_ended_is_forgotten_after_a_while():
    now = [0.0]
    sent = Sent(clock=lambda: now[0])
    keep(sent, "old", "a", 2)
    keep(sent, "running", "b", 2, ends=False)
    now[0] = KEEP_S + 1
    keep(sent, "new", "c", 2)
    assert lost(sent, "old", {}, owned=False) == ("a", 0)
    assert len(again(sent, "running", {}, owned=False)) == 2
    assert len(again(sent, "new", {}, owned=False)) == 2


def test_an_end_that_is_not_kept_is_a_failure_to_try_again():
    now = [0.0]
    sent = Sent(clock=lambda: now[0])
    keep(sent, "r", "a", 3)
    sent.keep("to", Refused(request_id="s", attempt_id="b", reason="kv_budget"), b"x")
    now[0] = KEEP_S + 1
    keep(sent, "new", "c", 2)
    assert lost(sent, "r", {"a": 1}, owned=True) == ("a", 1)
    assert lost(sent, "r", {"other": 5}, owned=False) == ("a", 0)
    assert lost(sent, "s", {}, owned=False) == ("b", 0)
    # all of it was heard; nothing of it is of use
    assert again(sent, "r", {"a": 3}, owned=True) == []
    assert again(sent, "r", {"other": 5}, owned=True) == []


def test_so_many_ends_are_remembered():
    now = [0.0]
    sent = Sent(clock=lambda: now[0])
    for number in range(REMEMBERED + 5):
        keep(sent, f"r{number}", f"a{number}", 2)
    now[0] = KEEP_S + 1
    keep(sent, "new", "c", 2)
    assert again(sent, "r4", {}, owned=False) == []
    assert lost(sent, "r5", {}, owned=False) == ("a5", 0)


def test_size_is_bounded_and_nothing_is_sent_with_a_hole():
    sent = Sent(limit=100)
    keep(sent, "r", "a", 3, ends=False, size=30)
    keep(sent, "s", "b", 2, ends=False, size=30)
    # "r" was forgotten for "s"; what comes of it later has no beginning
    assert again(sent, "r", {}, owned=False) == []
    sent.keep("to", event("r", "a", 3), b"x")
    assert again(sent, "r", {"a": 1}, owned=True) == []
    assert again(sent, "r", {"a": 3}, owned=True) == [b"x"]
    sent.keep("to", event("r", "a", 4, last=True), b"y")
    assert lost(sent, "r", {"a": 1}, owned=True) == ("a", 1)


def test_an_answer_too_large_to_be_kept_pushes_no_other_out():
    sent = Sent(limit=100)
    keep(sent, "small", "a", 2, size=10)
    keep(sent, "large", "b", 2, size=60)
    assert len(again(sent, "small", {}, owned=False)) == 2
    assert lost(sent, "large", {"b": 1}, owned=True) == ("b", 1)

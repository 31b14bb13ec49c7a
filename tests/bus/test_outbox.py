"""What a worker sends: together, in order, all of it, and within bounds when the bus is away."""

from __future__ import annotations

import asyncio

import pytest

from engines.bus import subjects, wire
from engines.protocol.events import (
    Admitted,
    AnyEvent,
    Completed,
    Delta,
    EncodeOutput,
    Failed,
    Missed,
    Tensor,
    Timing,
    Usage,
)
from engines.worker import outbox as module
from engines.worker import transfers
from engines.worker.outbox import ACK, Outbox


class Bus:
    """A connection that takes nothing until ``open`` is set; ``sent`` has what it took, by subject."""

    is_connected = True

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.sent: list[tuple[str, bytes]] = []
        self.pointers: list[str] = []

    async def publish(self, subject: str, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        await self.open.wait()
        if headers is None:
            self.sent.append((subject, data))
        else:
            assert headers[subjects.REQUEST_HEADER]
            self.pointers.append(headers[subjects.PAYLOAD_HEADER])

    async def flush(self, **options: float) -> None:
        return None

    def events(self) -> list[AnyEvent]:
        """What gateways got in messages."""
        return [event for subject, data in self.sent if subject == "gateway" for event in wire.decode_events(data)]


class Bucket:
    """Large payloads, which are stored once ``open`` is set. A name is the request that a payload answers."""

    limit = 1000

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.failing: set[str] = set()
        self.begun: list[str] = []
        self.stored: list[str] = []
        self.dropped: list[str] = []

    async def store(self, data: bytes) -> dict[str, str]:
        (event,) = wire.decode_events(data)
        self.begun.append(event.request_id)
        await self.open.wait()
        if event.request_id in self.failing:
            raise TimeoutError
        self.stored.append(event.request_id)
        return {subjects.PAYLOAD_HEADER: event.request_id}

    async def drop(self, headers: dict[str, str]) -> None:
        self.dropped.append(headers[subjects.PAYLOAD_HEADER])


def delta(seq: int) -> Delta:
    return Delta(request_id="r", attempt_id="a", seq=seq, text="x" * 50)


def completed(request: str, size: int) -> Completed:
    output = EncodeOutput(dense=Tensor("|u1", (1, size), b"v" * size), dense_dims=size)
    return Completed(request_id=request, attempt_id=request, seq=1, usage=Usage(), timing=Timing(), output=output)


def answer(outbox: Outbox, request: str, size: int) -> None:
    outbox.event("gateway", Admitted(request_id=request, attempt_id=request))
    outbox.event("gateway", completed(request, size))


async def turns() -> None:
    """Let the outbox do all that it can."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def bus() -> Bus:
    made = Bus()
    made.open.set()
    return made


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
async def outbox(bus, bucket):
    made = Outbox(bus, bucket)
    yield made
    await made.close()


async def test_events_of_one_turn_go_together_and_acks_follow_them(bus, outbox):
    for seq in range(3):
        outbox.event("gateway", delta(seq))
    outbox.settle("ack", ACK)
    await outbox.flush()
    (to, data), settled = bus.sent
    assert (to, [event.seq for event in wire.decode_events(data)]) == ("gateway", [0, 1, 2])
    assert settled == ("ack", ACK)


async def test_a_bus_that_is_slow_gets_everything_and_the_worker_takes_no_more_until_then(monkeypatch, bus, outbox):
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    bus.open.clear()
    for seq in range(1000):
        outbox.event("gateway", delta(seq))
    assert outbox.full
    waiting = asyncio.create_task(outbox.room())
    await turns()
    assert not waiting.done()
    bus.open.set()
    await waiting
    await outbox.flush()
    assert not outbox.full
    assert [event.seq for event in bus.events()] == list(range(1000))


async def test_a_bus_that_is_away_does_not_fill_the_memory_and_gets_the_rest_when_it_asks(monkeypatch, bus, outbox):
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    bus.open.clear()
    bus.is_connected = False
    for seq in range(1000):
        outbox.event("gateway", delta(seq))
    bus.is_connected = True
    bus.open.set()
    await outbox.flush()
    seen = [event.seq for event in bus.events()]
    assert seen == list(range(len(seen)))
    assert 0 < len(seen) < 200
    outbox.again(Missed("r", {"a": len(seen)}, owned=True))
    await outbox.flush()
    assert [event.seq for event in bus.events()] == list(range(1000))


@pytest.mark.parametrize(("broken", "lost", "unsettled"), [("gateway", 1, 2), ("ack-2", 0, 1), ("", 0, 0)])
async def test_what_the_bus_does_not_take_is_counted(broken, lost, unsettled, bucket):
    class Failing(Bus):
        async def publish(self, subject: str, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
            if subject == broken:
                raise ConnectionError("gone")

    outbox = Outbox(Failing(), bucket)
    outbox.event("gateway", delta(0))
    outbox.settle("ack-1", ACK)
    outbox.settle("ack-2", ACK)
    await outbox.flush()
    await outbox.close()
    assert outbox.counts == {"answers_lost_total": lost, "ack_failures_total": unsettled}


async def test_large_answers_go_one_after_another_and_small_ones_pass_them(monkeypatch, bus, bucket, outbox):
    monkeypatch.setattr(module, "MOST_BYTES", 5000)
    for number in range(3):
        answer(outbox, f"large-{number}", 4000)
        answer(outbox, f"small-{number}", 10)
    await turns()
    assert bucket.begun == ["large-0"]
    assert outbox.full
    ends = [event.request_id for event in bus.events() if isinstance(event, Completed)]
    assert ends == ["small-0", "small-1", "small-2"]
    bucket.open.set()
    await outbox.room()
    await outbox.flush()
    assert bus.pointers == ["large-0", "large-1", "large-2"]
    assert not any(isinstance(event, Failed) for event in bus.events())
    assert outbox.counts["answers_lost_total"] == 0


async def test_an_answer_in_transfer_that_is_asked_for_is_neither_lost_nor_transferred_twice(bus, bucket, outbox):
    answer(outbox, "r", 4000)
    await turns()
    for _ in range(3):
        outbox.again(Missed("r", {"r": 1}, owned=False))
        await turns()
    bucket.open.set()
    await outbox.flush()
    assert bucket.begun == bus.pointers == ["r"]
    assert [type(event) for event in bus.events()] == [Admitted]
    # it has left, so it was lost on its way: once more, and not twice at once
    bucket.open.clear()
    outbox.again(Missed("r", {"r": 1}, owned=False))
    await turns()
    outbox.again(Missed("r", {"r": 1}, owned=False))
    bucket.open.set()
    await outbox.flush()
    assert bucket.begun == bus.pointers == ["r", "r"]


async def test_of_large_answers_a_bus_that_is_away_loses_the_oldest_and_its_caller_is_told(
    monkeypatch, bus, bucket, outbox
):
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    bus.is_connected = False
    for number in range(4):
        answer(outbox, f"large-{number}", 4000)
    answer(outbox, "small", 10)
    bus.is_connected = True
    bucket.open.set()
    await outbox.over("large-0")
    await outbox.flush()
    assert bus.pointers == ["large-2", "large-3"]
    failed = {event.request_id: event for event in bus.events() if isinstance(event, Failed)}
    assert {name: (event.code, event.seq) for name, event in failed.items()} == {
        "large-0": ("transport_failure", 1),
        "large-1": ("transport_failure", 1),
    }
    assert "small" in {event.request_id for event in bus.events() if isinstance(event, Completed)}
    assert outbox.counts["answers_lost_total"] == 2


async def test_a_single_answer_is_sent_whatever_waits(monkeypatch, bus, bucket, outbox):
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    bus.is_connected = False
    answer(outbox, "r", 4000)
    bucket.open.set()
    await outbox.flush()
    assert bus.pointers == ["r"]


async def test_an_answer_that_the_bus_does_not_take_is_tried_again_after_the_others(monkeypatch, bus, bucket, outbox):
    monkeypatch.setattr(transfers, "PAUSE", 0.0)
    bucket.open.set()
    bucket.failing.add("first")
    answer(outbox, "first", 4000)
    answer(outbox, "second", 4000)
    await outbox.over("second")
    assert bus.pointers == ["second"]
    bucket.failing.clear()
    await outbox.flush()
    assert bus.pointers == ["second", "first"]


async def test_an_answer_that_nobody_waits_for_any_more_is_not_sent(bus, bucket, outbox):
    answer(outbox, "r", 4000)
    await turns()
    waiting = asyncio.create_task(outbox.over("r"))
    await turns()
    waiting.cancel()
    bucket.open.set()
    await turns()
    assert waiting.cancelled()
    assert bus.pointers == []
    assert bucket.dropped == ["r"]
    assert [type(event) for event in bus.events()] == [Admitted, Failed]
    assert not outbox.full


async def test_an_answer_that_is_far_too_large_is_refused_by_name(monkeypatch, bus, bucket, outbox):
    monkeypatch.setattr(module, "MOST_ANSWER", 3 << 20)
    answer(outbox, "r", 4 << 20)
    await outbox.flush()
    last = bus.events()[-1]
    assert isinstance(last, Failed)
    assert (last.code, last.seq) == ("PAYLOAD_TOO_LARGE", 1)
    assert last.message == "the answer has 4 MiB, which is more than 3 MiB: ask for fewer items at a time"
    assert bucket.begun == []

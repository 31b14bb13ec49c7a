"""What a worker sends: together, in order, and within bounds when the bus does not take it."""

from __future__ import annotations

import asyncio

import pytest

from engines.bus import wire
from engines.protocol.events import Delta
from engines.worker import outbox as module
from engines.worker.outbox import ACK, Outbox


class Bus:
    """A connection that takes nothing until ``open`` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.sent: list[tuple[str, bytes]] = []

    async def publish(self, subject: str, data: bytes) -> None:
        await self.open.wait()
        self.sent.append((subject, data))

    async def flush(self, **options: float) -> None:
        return None


class Small:
    limit = 1000


def delta(seq: int) -> Delta:
    return Delta(request_id="r", attempt_id="a", seq=seq, text="x" * 50)


async def test_events_of_one_turn_go_together_and_acks_follow_them():
    bus = Bus()
    bus.open.set()
    outbox = Outbox(bus, Small())
    for seq in range(3):
        outbox.event("gateway", delta(seq))
    outbox.settle("ack", ACK)
    await outbox.flush()
    await outbox.close()
    (to, data), settled = bus.sent
    assert (to, [event.seq for event in wire.decode_events(data)]) == ("gateway", [0, 1, 2])
    assert settled == ("ack", ACK)


async def test_a_bus_that_takes_nothing_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    bus = Bus()
    outbox = Outbox(bus, Small())
    outbox.event("gateway", delta(0))
    await asyncio.sleep(0)
    for seq in range(1, 1000):
        outbox.event("gateway", delta(seq))
        assert sum(map(len, outbox._events.get("gateway", ()))) <= 10_000
    bus.open.set()
    await outbox.flush()
    await outbox.close()
    seen = [event.seq for _, data in bus.sent for event in wire.decode_events(data)]
    assert seen[0] == 0
    assert seen[-1] == 999
    assert seen == sorted(seen)
    assert len(seen) < 1000  # the gateway sees the gap and fails the request
    assert outbox.counts["answers_lost_total"] > 0


@pytest.mark.parametrize(("broken", "lost", "unsettled"), [("gateway", 1, 2), ("ack-2", 0, 1), ("", 0, 0)])
async def test_what_the_bus_does_not_take_is_counted(broken, lost, unsettled):
    class Failing(Bus):
        async def publish(self, subject: str, data: bytes) -> None:
            if subject == broken:
                raise ConnectionError("gone")
            self.sent.append((subject, data))

    outbox = Outbox(Failing(), Small())
    outbox.event("gateway", delta(0))
    outbox.settle("ack-1", ACK)
    outbox.settle("ack-2", ACK)
    await outbox.flush()
    await outbox.close()
    assert outbox.counts == {"answers_lost_total": lost, "ack_failures_total": unsettled}

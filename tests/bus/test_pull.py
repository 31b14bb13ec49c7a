"""When a pull consumer asks for more. No heart-beat comes in these tests: nothing else wakes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from nats.aio.msg import Msg

from engines.bus import pull
from engines.bus.pull import Delivery, PullConsumer
from engines.bus.subjects import Direct

from .conftest import until

ACK = "$JS.ACK.stream.consumer.1.1.1.1700000000000000000.0"


class Bus:
    """Takes requests; ``answer`` is the status that each of them is answered with."""

    is_connected = True

    def __init__(self, answer: str | None = None) -> None:
        self.asked: list[int] = []
        self.receive: Callable[[Msg], object]
        self._answer = answer

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, _subject: str, *, cb: Callable[[Msg], object], **_limits: int) -> Bus:
        self.receive = cb
        return self

    async def unsubscribe(self) -> None:
        return None

    async def publish(self, _subject: str, data: bytes, reply: str) -> None:
        self.asked.append(json.loads(data)["batch"])
        if self._answer is not None:
            await asyncio.sleep(0)
            await self.receive(Msg(self, reply, "", b"", {"Status": self._answer}))

    async def send(self, count: int) -> None:
        for _ in range(count):
            await self.receive(Msg(self, "sie.work", ACK, b"", None))


@pytest.fixture(autouse=True)
def _no_heartbeat(monkeypatch):
    monkeypatch.setattr(pull, "HEARTBEAT", 600.0)


async def started(bus: Bus, room: Callable[[], int], deliver: Callable[[Delivery], None]) -> PullConsumer:
    consumer = PullConsumer(bus, Direct("w"), deliver, room)
    await consumer.start()
    await until(lambda: bool(bus.asked))
    return consumer


async def test_what_was_delivered_is_asked_for_anew_by_halves():
    bus = Bus()
    taken: list[Delivery] = []
    consumer = await started(bus, lambda: 8, taken.append)
    await bus.send(3)
    assert bus.asked == [8]
    await bus.send(1)
    await until(lambda: bus.asked == [8, 4])
    await bus.send(4)
    await until(lambda: bus.asked == [8, 4, 4])
    assert len(taken) == 8
    await consumer.stop()


async def test_nothing_is_asked_for_while_what_was_delivered_takes_the_room():
    bus = Bus()
    taken: list[Delivery] = []
    consumer = await started(bus, lambda: 8 - len(taken), taken.append)
    await bus.send(8)
    await turns()
    assert bus.asked == [8]
    taken.clear()
    consumer.poke()
    await until(lambda: bus.asked == [8, 8])
    await consumer.stop()


@pytest.mark.parametrize("status", ["503", "409", "404", "400"])
async def test_a_request_that_is_refused_is_not_made_again_before_a_pause(status, monkeypatch):
    monkeypatch.setattr(pull, "PAUSE", (600.0, 600.0))
    bus = Bus(answer=status)
    consumer = await started(bus, lambda: 8, print)
    for _ in range(5):
        await turns()
        consumer.poke()
        consumer.reset()
    assert bus.asked == [8]
    await consumer.stop()


@pytest.mark.parametrize(("status", "pause"), [("503", 0.0), ("408", 600.0)])
async def test_it_is_made_again_after_the_pause_and_at_once_when_it_has_expired(status, pause, monkeypatch):
    monkeypatch.setattr(pull, "PAUSE", (pause, pause))
    bus = Bus(answer=status)
    consumer = await started(bus, lambda: 8, print)
    await until(lambda: len(bus.asked) > 3)
    await consumer.stop()


async def turns() -> None:
    """Let every task do what it can do now."""
    for _ in range(20):
        await asyncio.sleep(0)

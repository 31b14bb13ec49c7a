"""The queues that a worker takes from: its lane's, which it shares, and its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

from engines.bus.clock import ServerClock
from engines.bus.pull import Delivery, PullConsumer
from engines.bus.settings import BusSettings
from engines.bus.streams import ensure_consumer, ensure_direct, ensure_stream
from engines.bus.subjects import Direct, Lane
from engines.bus.tasks import ended

log = logging.getLogger("sie.worker")

DIRECT_ROOM = 256
"""Messages of the own queue that may be on their way or being opened: what does not fit is refused, so none waits."""
CLOCK_EVERY = 60.0


class Intake:
    """Delivers work from both queues, and makes them anew when the bus has lost them.

    The lane's is asked for no more than ``room()``; of our own queue, ``opening()`` messages are being opened.
    ``open`` once there is a queue of our own.
    """

    def __init__(
        self,
        client: Client,
        js: JetStreamContext,
        bus: BusSettings,
        lane: Lane,
        name: str,
        deliver: Callable[[Delivery], None],
        room: Callable[[], int],
        opening: Callable[[], int],
    ) -> None:
        self._js = js
        self._bus = bus
        self.clock = ServerClock(client)
        self._lane = PullConsumer(client, lane, deliver, room)
        self._own = PullConsumer(client, Direct(name), deliver, lambda: max(0, DIRECT_ROOM - opening()))
        self._tasks: list[asyncio.Task[None]] = []
        self.open = False

    async def start(self) -> None:
        """Make the queues and take from them."""
        for pull in (self._lane, self._own):
            await self._until_ensured(pull)
        await self.clock.estimate(self._lane.queue.stream)
        for pull in (self._lane, self._own):
            await pull.start()
            self._tasks.append(asyncio.create_task(self._recreate(pull), name=f"recreate {pull.queue.stream}"))
        self._tasks.append(asyncio.create_task(self._follow_clock(), name="clock"))
        self.open = True

    def age(self, delivery: Delivery) -> float:
        """How many seconds ago the queue took a message."""
        return max(0.0, self.clock.now() - delivery.stamp)

    def poke(self) -> None:
        """There is more room than before."""
        self._lane.poke()
        self._own.poke()

    def reconnected(self) -> None:
        """The bus is back, perhaps without its memory streams."""
        self._lane.missing.set()
        self._own.missing.set()

    async def drain(self) -> None:
        """Take no more from the lane. What is sent to us alone still has to be refused."""
        self.open = False
        await self._lane.stop()

    async def stop(self) -> None:
        """Take nothing; the own queue goes with us."""
        self.open = False
        await ended(*self._tasks)
        await self._lane.stop()
        await self._own.stop()
        with contextlib.suppress(nats.errors.Error, TimeoutError):
            await self._js.delete_stream(self._own.queue.stream)

    async def _ensure(self, pull: PullConsumer) -> None:
        if isinstance(pull.queue, Lane):
            await ensure_stream(self._js, pull.queue, self._bus)
        else:
            await ensure_direct(self._js, pull.queue, self._bus)
        await ensure_consumer(self._js, pull.queue, self._bus)

    async def _until_ensured(self, pull: PullConsumer) -> None:
        while True:
            try:
                await self._ensure(pull)
                return
            except Exception as error:  # still coming up, or choosing a leader: ask again
                log.warning("bus: cannot create the queue: %s", str(error) or type(error).__name__)
                await asyncio.sleep(0.5)

    async def _recreate(self, pull: PullConsumer) -> None:
        """A bus with memory streams that was restarted has forgotten queue and consumer."""
        while True:
            await pull.missing.wait()
            pull.missing.clear()
            await self._until_ensured(pull)
            pull.reset()

    async def _follow_clock(self) -> None:
        while True:
            await asyncio.sleep(CLOCK_EVERY)
            await self.clock.estimate(self._lane.queue.stream)

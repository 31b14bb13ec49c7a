"""A pull consumer that keeps as much work on its way as the worker has room for.

nats-py's own ``fetch`` asks, waits and asks again, one round trip of idleness per batch. Here requests stay open at
the server, so a message arrives as soon as it is published, and never more than the room that was announced.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Callable

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from .subjects import Direct, Queue
from .tasks import ended

log = logging.getLogger("sie.bus")

EXPIRES = 30.0
HEARTBEAT = 2.0
PAUSE = (0.2, 0.5)
"""Seconds, at random, before asking again after a refusal: it comes at once, and so would the next."""
EXPIRED = "408"


class Delivery(msgspec.Struct, frozen=True):
    """One message of a work queue.

    ``ack`` is the subject that settles it; ``tries`` counts deliveries from 1; ``stamp`` is when the queue took it, in
    seconds since the epoch by the server's clock. ``direct``: it was meant for this worker and no other.
    """

    data: bytes
    ack: str
    tries: int
    headers: dict[str, str]
    stamp: float
    subject: str = ""
    direct: bool = False


class PullConsumer:
    """Calls ``deliver`` with each message of a queue, while fewer than ``room()`` more are on their way."""

    def __init__(
        self, client: Client, queue: Queue, deliver: Callable[[Delivery], None], room: Callable[[], int]
    ) -> None:
        self.queue = queue
        self._client = client
        self._direct = isinstance(queue, Direct)
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{queue.stream}.{queue.consumer}"
        self._deliver = deliver
        self._room = room
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._credit = 0
        self._heard = 0.0
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self.missing = asyncio.Event()
        """Set when the server no longer knows the consumer."""

    async def start(self) -> None:
        self._subscription = await self._client.subscribe(
            self._inbox, cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0
        )
        self._wanted.set()
        self._task = asyncio.create_task(self._ask(), name="pull")

    async def stop(self) -> None:
        """Take no more; what arrives after this stays at the server."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._task is not None:
            await ended(self._task)
            self._task = None
        if self._subscription is not None:
            with contextlib.suppress(Exception):  # a connection that is gone has no subscription to end
                await self._subscription.unsubscribe()
            self._subscription = None

    def poke(self) -> None:
        """There is more room than before."""
        self._wanted.set()

    def reset(self) -> None:
        """Forget requests made before a reconnect."""
        self._credit = 0
        self._wanted.set()

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT):
                    await self._wanted.wait()
            self._wanted.clear()
            if loop.time() - self._heard > 2.5 * HEARTBEAT:
                # neither message nor heart-beat: the server has lost our requests
                self._credit = 0
            wanted = self._lacking()
            if wanted and self._pause is None and self._client.is_connected:
                self._credit += wanted
                self._heard = loop.time()
                await self._request(wanted)

    def _lacking(self) -> int:
        """How many more to ask for now: in halves, which keeps requests few while there is always one open."""
        room = self._room()
        wanted = room - self._credit
        return wanted if wanted > 0 and wanted * 2 >= room else 0

    async def _request(self, batch: int) -> None:
        request = {"batch": batch, "expires": int(EXPIRES * 1e9), "idle_heartbeat": int(HEARTBEAT * 1e9)}
        try:
            await self._client.publish(self._next, json.dumps(request).encode(), reply=self._inbox)
        except Exception as error:  # the client reconnects by itself; the next turn asks again
            self._credit = max(0, self._credit - batch)
            log.warning("bus: cannot ask for work: %s", error)

    async def _receive(self, message: Msg) -> None:
        self._heard = asyncio.get_running_loop().time()
        headers = message.headers or {}
        status = headers.get("Status")
        if status is None:
            # delivered under its own subject, so it does not tell which request it answers: one sum for all
            self._credit = max(0, self._credit - 1)
            tries, stamp = _metadata(message.reply)
            self._deliver(
                Delivery(message.data, message.reply, tries, dict(headers), stamp, message.subject, self._direct)
            )
            if self._lacking():
                self._wanted.set()  # the server does not say when a request is fulfilled
        elif status != "100":
            # the end of a request: expired, refused, or of a consumer that is gone
            if status == "503" or "Deleted" in headers.get("Description", ""):
                self.missing.set()
            self._credit = max(0, self._credit - int(headers.get("Nats-Pending-Messages", self._credit)))
            if status == EXPIRED:
                self._wanted.set()
            elif self._pause is None:
                self._pause = asyncio.get_running_loop().call_later(random.uniform(*PAUSE), self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._wanted.set()


def _metadata(ack: str) -> tuple[int, float]:
    """Delivery count and time stamp out of
    ``$JS.ACK[.domain.account].stream.consumer.count.streamseq.consumerseq.nanoseconds.pending``"""
    tokens = ack.split(".")
    first = 4 if len(tokens) < 11 else 6
    return int(tokens[first]), int(tokens[first + 3]) / 1e9

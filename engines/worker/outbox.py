"""What a worker sends: the events of one turn of its event loop to one gateway go in one message.

An engine step ends in one turn, so its tokens for a hundred requests of a gateway cost one message. Acks wait behind
the events that they settle.
"""

from __future__ import annotations

import asyncio
import logging

from nats.aio.client import Client

from engines.bus import wire
from engines.bus.payloads import Payloads
from engines.bus.tasks import ended
from engines.protocol.events import Missed, WireEvent

from .sent import Sent

log = logging.getLogger("sie.worker")

ACK = b"+ACK"
NAK = b"-NAK"
TERM = b"+TERM"
PROGRESS = b"+WPI"
LATER = b'-NAK {"delay": 200000000}'
"""Deliver again in 0.2 s."""
MOST_BYTES = 64 << 20
"""Events that may wait for a bus that does not take them; more are lost, which gateways see by the gap."""


class Outbox:
    """Collects events and acks, and sends them in order from one task. ``counts`` are samples for heart-beats."""

    def __init__(self, client: Client, payloads: Payloads) -> None:
        self._client = client
        self._payloads = payloads
        self._events: dict[str, list[bytes]] = {}
        self._size = 0
        self._sent = Sent()
        self.counts = {"answers_lost_total": 0.0, "ack_failures_total": 0.0}
        self._acks: list[tuple[str, bytes]] = []
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task = asyncio.create_task(self._send(), name="outbox")

    def event(self, subject: str, event: WireEvent) -> None:
        """Send ``event`` to the gateway behind ``subject``."""
        data = wire.encode(event)
        self._sent.keep(subject, event, data)
        self._put(subject, data)

    def again(self, missed: Missed) -> None:
        """Send once more what a gateway has missed, as far as it is kept."""
        for subject, events in self._sent.again(missed.request_id, missed.seen, missed.owned):
            for data in events:
                self._put(subject, data)

    def _put(self, subject: str, data: bytes) -> None:
        self._size += len(data)
        if self._size > MOST_BYTES:
            log.error("bus: it does not take what is sent, %d bytes of answers are lost", self._size)
            self.counts["answers_lost_total"] += 1
            self._events.clear()
            self._size = len(data)
        self._events.setdefault(subject, []).append(data)
        self._wake()

    def settle(self, ack: str, verdict: bytes) -> None:
        """Settle a delivery after all events so far."""
        self._acks.append((ack, verdict))
        self._wake()

    async def flush(self) -> None:
        """Wait until everything so far is on its way."""
        await self._idle.wait()
        await self._client.flush(timeout=2)

    async def close(self) -> None:
        await ended(self._task)

    def _wake(self) -> None:
        self._idle.clear()
        self._wanted.set()

    async def _send(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            events, self._events, self._size = self._events, {}, 0
            acks, self._acks = self._acks, []
            answered, settled = False, 0
            try:
                for subject, parts in events.items():
                    await self._send_events(subject, parts)
                answered = True
                for ack, verdict in acks:
                    await self._client.publish(ack, verdict)
                    settled += 1
            except Exception as error:  # the connection heals itself; the gateway sees a gap and says so
                self.counts["answers_lost_total"] += not answered
                self.counts["ack_failures_total"] += len(acks) - settled
                log.error("bus: an answer was lost: %s: %s", type(error).__name__, error)
            if not self._wanted.is_set():
                self._idle.set()

    async def _send_events(self, subject: str, parts: list[bytes]) -> None:
        limit = self._payloads.limit
        for run in wire.split(parts, limit):
            data = wire.pack(run)
            if len(data) <= limit:
                await self._client.publish(subject, data)
            else:
                await self._client.publish(subject, headers=await self._payloads.store(data))

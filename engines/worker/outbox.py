"""What a worker sends: the events of one turn of its event loop to one gateway go in one message.

An engine step ends in one turn, so its tokens for a hundred requests of a gateway cost one message. Acks wait behind
the events that they settle. What is too large for a message has its own way (``Transfers``): nothing waits behind it.

While the bus is connected nothing is dropped: a worker takes no new work while ``full``. When it was away, gateways ask
for what did not get out, and ``Sent`` has it; of large answers, those that have waited longest are lost then.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec
from nats.aio.client import Client

from engines.bus import wire
from engines.bus.payloads import Payloads
from engines.bus.tasks import ended
from engines.protocol.events import Completed, Failed, Missed, WireEvent

from .sent import Sent, lost
from .transfers import Transfer, Transfers

log = logging.getLogger("sie.worker")

ACK = b"+ACK"
NAK = b"-NAK"
TERM = b"+TERM"
PROGRESS = b"+WPI"
LATER = b'-NAK {"delay": 200000000}'
"""Deliver again in 0.2 s."""
MOST_BYTES = 64 << 20
"""Bytes that may wait before no more work is taken, and of large answers while the bus is away."""
MOST_ANSWER = 512 << 20
"""Bytes that one answer may have."""


class Outbox:
    """Collects events and acks, and sends them in order from one task. ``counts`` are samples for heart-beats."""

    def __init__(self, client: Client, payloads: Payloads) -> None:
        self._client = client
        self._payloads = payloads
        self._events: dict[str, list[bytes]] = {}
        self._size = 0
        self._sent = Sent()
        self._transfers = Transfers(client, payloads, self._transferred)
        self._has_room = asyncio.Event()
        self.counts = {"answers_lost_total": 0.0, "ack_failures_total": 0.0}
        self._acks: list[tuple[str, bytes]] = []
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task = asyncio.create_task(self._send(), name="outbox")

    def event(self, subject: str, event: WireEvent) -> None:
        """Send ``event`` to the gateway behind ``subject``."""
        data = wire.encode(event)
        if len(data) > MOST_ANSWER:
            event = _too_large(event, len(data))
            data = wire.encode(event)
        if self._fits(data):
            self._sent.keep(subject, event, data)
            self._put(subject, data)
        else:
            # only the last event of an attempt is that large; until it has left, the attempt goes on for ``Sent``
            self._transfers.add(Transfer(subject, event.request_id, event.attempt_id, data, _bare(event)))
            self._bound()

    async def over(self, attempt: str) -> None:
        """Wait until the answer of an attempt is on its way. If that is cancelled, it is not sent any more."""
        try:
            await self._transfers.over(attempt)
        except asyncio.CancelledError:
            self._lose(self._transfers.give_up(attempt))
            raise

    @property
    def full(self) -> bool:
        """Whether so much waits that no more work should be begun."""
        return self._size + self._transfers.size > MOST_BYTES

    async def room(self) -> None:
        """Wait while it is full."""
        while self.full:
            self._has_room.clear()
            await self._has_room.wait()

    def again(self, missed: Missed) -> None:
        """Send once more what a gateway has missed, as far as it is kept."""
        for attempt, subject, events in self._sent.again(missed.request_id, missed.seen, missed.owned):
            for data in events:
                if self._fits(data):
                    self._put(subject, data)
                else:
                    self._transfers.add(Transfer(subject, missed.request_id, attempt, data))

    def _fits(self, data: bytes) -> bool:
        """Whether it goes in one message."""
        return len(data) < self._payloads.limit

    def _put(self, subject: str, data: bytes) -> None:
        if self._size > MOST_BYTES and not self._client.is_connected:
            return  # its gateway will ask for it
        self._size += len(data)
        self._events.setdefault(subject, []).append(data)
        self._wake()

    def settle(self, ack: str, verdict: bytes) -> None:
        """Settle a delivery after all events so far."""
        self._acks.append((ack, verdict))
        self._wake()

    async def flush(self) -> None:
        """Wait until everything so far is on its way."""
        await self._transfers.flush()
        await self._idle.wait()
        await self._client.flush(timeout=2)

    async def close(self) -> None:
        await self._transfers.close()
        await ended(self._task)

    def _transferred(self, transfer: Transfer) -> None:
        if transfer.event is not None:
            self._sent.keep(transfer.subject, transfer.event, transfer.data)
        self._has_room.set()

    def _bound(self) -> None:
        """Large answers do not fill the memory while the bus is away: the oldest are lost first."""
        while not self._client.is_connected and self._transfers.size > MOST_BYTES and len(self._transfers) > 1:
            log.error("bus: it is away, and too much waits: an answer is lost")
            self.counts["answers_lost_total"] += 1
            self._lose(self._transfers.give_up())

    def _lose(self, transfer: Transfer | None) -> None:
        """Tell the gateway that it will not come, unless it is kept still."""
        self._has_room.set()
        if transfer is not None and (event := transfer.event) is not None:
            self.event(transfer.subject, lost(event.request_id, event.attempt_id, event.seq, event.seq))

    def _wake(self) -> None:
        self._idle.clear()
        self._wanted.set()

    async def _send(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            events, self._events = self._events, {}
            size = self._size
            acks, self._acks = self._acks, []
            answered, settled = False, 0
            try:
                for subject, parts in events.items():
                    await self._send_events(subject, parts)
                answered = True
                for ack, verdict in acks:
                    await self._client.publish(ack, verdict)
                    settled += 1
            except Exception as error:  # the connection heals itself; the gateway misses it and asks for it
                self.counts["answers_lost_total"] += not answered
                self.counts["ack_failures_total"] += len(acks) - settled
                log.error("bus: an answer was lost: %s: %s", type(error).__name__, error)
            self._size -= size
            self._has_room.set()
            if not self._wanted.is_set():
                self._idle.set()

    async def _send_events(self, subject: str, parts: list[bytes]) -> None:
        for run in wire.split(parts, self._payloads.limit):
            await self._client.publish(subject, wire.pack(run))


def _bare(event: WireEvent) -> WireEvent:
    """An event without what makes it large."""
    return msgspec.structs.replace(event, output=None) if isinstance(event, Completed) else event


def _too_large(event: WireEvent, size: int) -> Failed:
    most = MOST_ANSWER >> 20
    return Failed(
        request_id=event.request_id,
        attempt_id=event.attempt_id,
        seq=event.seq,
        code="PAYLOAD_TOO_LARGE",
        message=f"the answer has {size >> 20} MiB, which is more than {most} MiB: ask for fewer items at a time",
    )

"""What becomes of work whose worker has gone, refuses it or is late: it is published anew, as long as nothing of its
answer has been seen; and of work that nobody wants any more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StreamInfo
from nats.js.errors import NotFoundError

from engines.bus import subjects, wire
from engines.bus.subjects import Direct, Lane
from engines.protocol.cluster import DispatchError
from engines.protocol.events import Refused

from .answer import PendingAnswer
from .flight import Flight, name_of
from .publisher import Publisher
from .registry import Registry

log = logging.getLogger("sie.dispatcher")

MOST_REFUSALS = 2
"""Workers that may refuse the same work before its caller is told (contract N.4)."""
MOST_ATTEMPTS = 4
"""Publications of one request. Each has ``SIE_MAX_DELIVER`` deliveries, so work that kills workers ends."""
CHECK_TRIES = 20

_BUS = (nats.errors.Error, TimeoutError, OSError)


class Rescue:
    """Acts on the open ``flights``. Does nothing before ``connected``."""

    def __init__(
        self,
        flights: Mapping[str, Flight],
        registry: Registry,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._flights = flights
        self._registry = registry
        self._spawn = spawn
        self._client: Client | None = None

    def connected(self, client: Client, js: JetStreamContext, publisher: Publisher) -> None:
        self._client = client
        self._js = js
        self._publisher = publisher

    def late(self, answer: PendingAnswer) -> bool:
        """There was no output in time: try the others, when one worker alone was asked and there are others."""
        flight = self._flights[answer.request_id]
        if flight.worker is None or self._registry.peers(flight.lane) < 2:
            return False
        return self._again(flight)

    def refused(self, flight: Flight, event: Refused) -> None:
        """A worker does not take the work: publish it once more for all of the lane, then give up (contract N.4)."""
        answer = flight.answer
        if answer.begun or answer.is_stale(event.attempt_id):
            return
        flight.refusals += 1
        if flight.refusals >= MOST_REFUSALS or not self._again(flight):
            message = f"the workers are too busy for this request ({event.reason})"
            answer.fail("rate_limit_exceeded", message, retry_after=1)

    def worker_lost(self, name: str, reason: str) -> None:
        """Fail what the worker has begun, publish anew what waited for it alone, or in a lane that has nobody now."""
        for flight in list(self._flights.values()):
            answer = flight.answer
            answer.lose_worker(name, reason)
            if answer.done or answer.begun:
                continue
            stranded = flight.worker is None and not self._registry.peers(flight.lane)
            if flight.worker == name or (stranded and self._elsewhere(flight)):
                self._again(flight)
        if self._client is not None:
            self._spawn(self._remove(Direct(name)))

    async def cancel(self, flight: Flight) -> None:
        """Tell the workers, and take the message back in case none has it."""
        if self._client is None:
            return
        with contextlib.suppress(*_BUS):
            await self._client.publish(subjects.CANCEL, wire.encode([flight.answer.request_id]))
        # its payload goes, so its message may not come to another worker, even when an answer has begun
        if flight.payload is not None or not flight.answer.begun:
            await self._publisher.withdraw(flight.stream, flight.sequence, flight.payload)

    async def find_lost_streams(self) -> None:
        """A bus whose memory streams went with it has lost the work in them: say so at once, callers can retry."""
        lost: set[str] = set()
        streams = self._publisher.streams
        for stream, created in list(streams.items()):
            if await _is_gone(self._js, stream, created):
                streams.pop(stream, None)
                lost.add(stream)
        for flight in list(self._flights.values()):
            if flight.answer.begun or flight.answer.done:
                continue
            if flight.worker is not None and await self._is_lost(flight) and self._again(flight):
                continue
            if flight.stream in lost:
                flight.answer.fail("transport_failure", "the message bus was restarted and lost the request", 1)

    async def _is_lost(self, flight: Flight) -> bool:
        """Whether the queue of one worker no longer knows a message; its worker may have made it anew."""
        with contextlib.suppress(NotFoundError):
            info = await _info(self._js, flight.stream)
            return info is not None and info.state.last_seq < (flight.sequence or 0)
        return True

    def _elsewhere(self, flight: Flight) -> Lane | None:
        """Another lane of the bundle whose workers may do the work."""
        place = self._registry.place(flight.route, flight.work.bundle, name_of(flight.work))
        return None if place is None or place.lane == flight.lane else place.lane

    def _again(self, flight: Flight) -> bool:
        """Publish for all workers of a lane what was published before; ``False`` when that was done often enough."""
        answer = flight.answer
        if answer.attempt + 1 >= MOST_ATTEMPTS or self._client is None:
            return False
        before = flight.stream, flight.sequence, flight.payload, flight.worker, answer.attempt
        if not self._registry.peers(flight.lane):
            flight.lane = self._elsewhere(flight) or flight.lane
        flight.worker = flight.sequence = flight.payload = None
        answer.restart()
        self._publisher.counts.republished += 1
        self._spawn(self._publish(flight, *before))
        return True

    async def _publish(
        self,
        flight: Flight,
        stream: str,
        sequence: int | None,
        payload: dict[str, str] | None,
        worker: str | None,
        at: int,
    ) -> None:
        answer = flight.answer
        log.info("request %s: published anew for %s", answer.request_id, "/".join(flight.lane))
        if worker is not None and self._client is not None:
            with contextlib.suppress(*_BUS):
                data = wire.encode([f"{answer.request_id}/{at}"])
                await self._client.publish(subjects.cancel_one(worker), data)
        try:
            await self._publisher.publish(flight)
        except DispatchError as error:
            answer.fail("transport_failure", error.message, error.retry_after)
        # not reused: the worker that ends the old attempt drops its payload; nobody hears that attempt any more
        await self._publisher.withdraw(stream, sequence, payload)
        if answer.done and not answer.begun:
            await self.cancel(flight)

    async def _remove(self, queue: Direct) -> None:
        """The queue of a worker that has gone; one that was only silent makes it anew. The first gateway does it."""
        with contextlib.suppress(*_BUS):
            if all(worker.name != queue.worker for worker in self._registry.workers()):
                await self._js.delete_stream(queue.stream)


async def _is_gone(js: JetStreamContext, stream: str, created: datetime | None) -> bool:
    """Whether a stream is not there any more, or is a new one of that name; not, while the bus does not tell."""
    try:
        info = await _info(js, stream)
    except NotFoundError:
        return True
    return info is not None and info.created != created


async def _info(js: JetStreamContext, stream: str) -> StreamInfo | None:
    """What the bus knows of a stream; waits for one that is still coming up.

    Raises:
        NotFoundError: there is no such stream.
    """
    for _ in range(CHECK_TRIES):
        try:
            return await js.stream_info(stream)
        except NotFoundError:
            raise
        except _BUS:
            await asyncio.sleep(0.2)
    return None

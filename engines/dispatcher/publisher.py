"""Publishing work: the one step that every request waits for, so it does one round trip and no more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import datetime

import msgspec
import nats.errors
from nats.js import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError

from engines.bus import subjects, wire
from engines.bus.payloads import Payloads
from engines.bus.settings import BusSettings
from engines.bus.streams import ensure_stream
from engines.bus.subjects import Direct
from engines.protocol.cluster import BusCounts, DispatchError

from .flight import Flight

DIRECT_PATIENCE = 1.0
"""Seconds for the queue of one worker to confirm; after that the work goes to all of its lane."""
TRY_FOR = 1.5
"""Seconds for one try to publish to a lane."""
PATIENCE = 10.0
"""Seconds in which a try may begin: NATS takes 4 to 9 to miss the leader of a queue, a client finds another server."""
PAUSE = 0.1
IN_PROCESS = 10158
"""JetStream error code: the same message is being taken, from a try before."""
STREAM_FULL = frozenset({10077, 10047, 10023, 10028})
"""JetStream error codes: limit of the stream, of its memory, of the account."""


class Publisher:
    """Puts work into queues, and takes back what nobody has taken.

    ``streams``: when each queue was created. ``counts``: what this gateway has done with its bus.
    """

    def __init__(self, js: JetStreamContext, payloads: Payloads, settings: BusSettings, reply: str) -> None:
        self._js = js
        self._payloads = payloads
        self._settings = settings
        self._reply = reply
        self.streams: dict[str, datetime | None] = {}
        self.counts = BusCounts()

    async def publish(self, flight: Flight) -> None:
        """Publish to the worker that was chosen, else, and where that has no queue or a full one, to the lane.

        A payload that was stored stays with the flight: whoever ends that, also after a failure, withdraws it.

        Raises:
            DispatchError: the queue refused it, or the bus does not answer.
        """
        started = time.perf_counter()
        answer = flight.answer
        answer.direct = False
        work = msgspec.structs.replace(
            flight.work,
            pool=flight.lane.pool,
            reply_subject=self._reply,
            time_left=min(flight.work.time_left or answer.time_left, answer.time_left),
            attempt=answer.attempt,
        )
        data = wire.encode(work)
        headers = {
            subjects.ID_HEADER: subjects.message_id(work.request_id, work.attempt),
            subjects.REPLY_HEADER: self._reply,
        }
        try:
            if len(data) > self._payloads.limit:
                flight.payload = await self._payloads.store(data)
                headers |= flight.payload
                self.counts.payload_offloads += 1
                data = b""
            if flight.worker is not None and await self._to_worker(flight, data, headers):
                answer.direct = True
            else:
                flight.worker = None
                await self._to_lane(flight, data, headers)
        except APIError as error:
            if error.err_code in STREAM_FULL:
                raise DispatchError("backpressure", "the work queue is full", retry_after=5) from error
            raise DispatchError("queue_unavailable", f"the work queue refused: {error.description}", 5) from error
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise DispatchError("queue_unavailable", "the message bus does not answer", retry_after=5) from error
        answer.publish_ms = (time.perf_counter() - started) * 1000.0

    async def _to_worker(self, flight: Flight, data: bytes, headers: dict[str, str]) -> bool:
        assert flight.worker is not None
        try:
            subject = Direct(flight.worker).subject(flight.lane, flight.work.model)
            flight.sequence = (await self._js.publish(subject, data, DIRECT_PATIENCE, headers=headers)).seq
        except (nats.errors.Error, TimeoutError):
            return False
        return True

    async def _to_lane(self, flight: Flight, data: bytes, headers: dict[str, str]) -> None:
        lane, js = flight.lane, self._js
        subject = lane.subject(flight.work.model)
        if lane.stream not in self.streams:
            self.streams[lane.stream] = await ensure_stream(js, lane, self._settings)
        loop = asyncio.get_running_loop()
        limit = loop.time() + PATIENCE
        while True:
            try:
                flight.sequence = (await js.publish(subject, data, TRY_FOR, headers=headers)).seq
                return
            except (nats.errors.Error, TimeoutError, OSError) as error:
                missing = isinstance(error, NoStreamResponseError)
                final = isinstance(error, APIError) and not missing and error.err_code != IN_PROCESS
                if final or loop.time() > limit:
                    raise
                # its id makes work count once, however often it is published
                await asyncio.sleep(PAUSE)
                if missing:
                    # no leader now, or a bus with memory streams that came back empty
                    with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                        self.streams[lane.stream] = await ensure_stream(js, lane, self._settings)

    async def withdraw(self, stream: str, sequence: int | None, payload: dict[str, str] | None) -> None:
        """Take back a message that nobody waits for, and its payload; what a worker has fetched it keeps."""
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):  # it is gone, or the bus is
            if sequence is not None:
                await self._js.delete_msg(stream, sequence)
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            await self._payloads.drop(payload)

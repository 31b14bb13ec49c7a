"""What a worker keeps of work that it could not do: a dead letter, and a word to whoever waits for it."""

from __future__ import annotations

import logging

import msgspec
import nats.errors
from nats.js import JetStreamContext

from engines.bus import subjects
from engines.bus.dead_letters import DeadLetter, DeadLetters, letter
from engines.bus.pull import Delivery
from engines.bus.settings import BusSettings
from engines.protocol.events import Failed
from engines.protocol.work import Work

from .outbox import TERM, Outbox
from .reply import attempt_id

log = logging.getLogger("sie.worker")


class Letters:
    """Writes the letters of the worker that has this name."""

    def __init__(self, js: JetStreamContext, bus: BusSettings, outbox: Outbox, worker: str) -> None:
        self._letters = DeadLetters(js, bus)
        self._outbox = outbox
        self._worker = worker

    async def unreadable(self, delivery: Delivery, error: msgspec.DecodeError) -> None:
        """Work that cannot be decoded: whoever waits is told, as far as the headers say who that is."""
        log.error("work cannot be decoded and is dropped: %s", error)
        headers = delivery.headers
        request_id, attempt = subjects.of_message_id(headers.get(subjects.ID_HEADER, ""))
        if reply := headers.get(subjects.REPLY_HEADER):
            failed = Failed(
                request_id=request_id,
                attempt_id=attempt_id(attempt),
                code="malformed_worker_response",
                message="the worker cannot read what the gateway sent",
                details={"permanent": True},
            )
            self._outbox.event(reply, failed)
        size, cause = len(delivery.data), type(error).__name__
        dead = letter("decode_error", delivery.tries, headers, None, size=size, error_class=cause, worker=self._worker)
        await self._put(dead, delivery)
        self._outbox.settle(delivery.ack, TERM)

    async def engine_error(self, delivery: Delivery, work: Work, error_class: str) -> None:
        """Work at which the engine failed in a way that nobody foresaw; its caller has been told."""
        size = len(delivery.data)
        dead = letter(
            "engine_error",
            delivery.tries,
            delivery.headers,
            work,
            size=size,
            error_class=error_class,
            worker=self._worker,
        )
        await self._put(dead, delivery)

    async def _put(self, dead: DeadLetter, delivery: Delivery) -> None:
        try:
            await self._letters.put(dead, delivery.subject.split(".")[5])
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.error("request %s: its dead letter is lost: %s", dead.request_id, error)

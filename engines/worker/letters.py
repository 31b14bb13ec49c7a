"""What a worker keeps of work that it could not do: a dead letter, and a word to whoever waits for it."""

from __future__ import annotations

import logging

import msgspec
import nats.errors
from nats.js import JetStreamContext

from engines.bus import subjects
from engines.bus.dead_letters import DeadLetter, DeadLetters, letter
from engines.bus.payloads import PayloadGone
from engines.bus.pull import Delivery
from engines.bus.settings import BusSettings
from engines.protocol.events import Failed, FailureCode
from engines.protocol.work import Work

from .jobs import Jobs
from .outbox import LATER, TERM, Outbox
from .reply import attempt_id

log = logging.getLogger("sie.worker")


class Letters:
    """Writes the letters of the worker that has this name."""

    def __init__(self, js: JetStreamContext, bus: BusSettings, outbox: Outbox, worker: str) -> None:
        self._letters = DeadLetters(js, bus)
        self._most_tries = bus.max_deliver
        self._outbox = outbox
        self._worker = worker

    async def unreadable(self, delivery: Delivery, error: msgspec.DecodeError) -> None:
        """Work that cannot be decoded: whoever waits is told, as far as the headers say who that is."""
        log.error("work cannot be decoded and is dropped: %s", error)
        message = "the worker cannot read what the gateway sent"
        self._tell(delivery, "malformed_worker_response", message, details={"permanent": True})
        size, cause, headers = len(delivery.data), type(error).__name__, delivery.headers
        dead = letter("decode_error", delivery.tries, headers, None, size=size, error_class=cause, worker=self._worker)
        await self._put(dead, delivery)
        self._outbox.settle(delivery.ack, TERM)

    def not_fetched(self, delivery: Delivery, error: Exception, jobs: Jobs) -> None:
        """Work whose payload did not come is put back; when that is of no use, whoever waits is told to try again."""
        gone = isinstance(error, PayloadGone)
        log.warning("work cannot be fetched (%d): %s: %s", delivery.tries, type(error).__name__, error)
        # put back after its last delivery, it would be told as a fault of the work, and that for good
        if not gone and delivery.tries < self._most_tries:
            self._outbox.settle(delivery.ack, LATER)
            return
        request_id, attempt = subjects.of_message_id(delivery.headers.get(subjects.ID_HEADER, ""))
        running = jobs.get(request_id)
        if running is None or running.work.attempt != attempt:  # else that one answers
            message = "the request was lost on its way" if gone else "the message bus does not hand out the request"
            self._tell(delivery, "transport_failure", message, retry_after=1)
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

    def _tell(
        self,
        delivery: Delivery,
        code: FailureCode,
        message: str,
        *,
        retry_after: float | None = None,
        details: dict[str, object] | None = None,
    ) -> None:
        """End a request whose work is not at hand, as far as the headers say who waits for it."""
        request_id, attempt = subjects.of_message_id(delivery.headers.get(subjects.ID_HEADER, ""))
        if reply := delivery.headers.get(subjects.REPLY_HEADER):
            failed = Failed(
                request_id=request_id,
                attempt_id=attempt_id(attempt),
                code=code,
                message=message,
                retry_after=retry_after,
                details=details or {},
            )
            self._outbox.event(reply, failed)

    async def _put(self, dead: DeadLetter, delivery: Delivery) -> None:
        try:
            await self._letters.put(dead, delivery.subject.split(".")[5])
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.error("request %s: its dead letter is lost: %s", dead.request_id, error)

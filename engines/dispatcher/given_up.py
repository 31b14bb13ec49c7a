"""Work that was delivered as often as it may be: its caller is told at once, the operator finds a dead letter.

The server tells of such a message when its last delivery was not acknowledged, whether or not a worker is left. One of
the gateways takes each notice, and each dead letter for counting.
"""

from __future__ import annotations

import logging
from collections import Counter

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from engines.bus import subjects, wire
from engines.bus.dead_letters import DeadLetter, DeadLetters, letter
from engines.bus.payloads import Payloads
from engines.bus.settings import BusSettings
from engines.protocol.events import Failed
from engines.protocol.work import Work

from .answer import given_up

log = logging.getLogger("sie.dispatcher")

GROUP = "gateways"


class Notice(msgspec.Struct):
    """What the server says of a message that it delivers no more."""

    stream: str
    stream_seq: int
    deliveries: int


_notice = msgspec.json.Decoder(Notice)
_letter = msgspec.json.Decoder(DeadLetter)


class GivenUp:
    """``counts``: dead letters that this gateway has seen, by model and reason."""

    def __init__(self, client: Client, js: JetStreamContext, payloads: Payloads, settings: BusSettings) -> None:
        self._client = client
        self._js = js
        self._payloads = payloads
        self._letters = DeadLetters(js, settings)
        self.counts: Counter[tuple[str, str]] = Counter()

    async def start(self) -> None:
        await self._client.subscribe(subjects.GIVEN_UP, queue=GROUP, cb=self._on_notice)
        await self._client.subscribe(f"{subjects.DEAD_LETTER}.*", queue=GROUP, cb=self._on_letter)

    async def _on_notice(self, message: Msg) -> None:
        try:
            notice = _notice.decode(message.data)
            if notice.stream.startswith("WORK_"):
                await self._bury(notice)
        except (msgspec.DecodeError, nats.errors.Error, TimeoutError, OSError) as error:
            log.error("work that was given up cannot be put away: %s: %s", type(error).__name__, error)

    async def _bury(self, notice: Notice) -> None:
        found = await self._js.get_msg(notice.stream, notice.stream_seq)
        headers: dict[str, str] = dict(found.headers or {})
        data: bytes = found.data or b""
        work = _decoded(data)
        dead = letter("max_deliveries", notice.deliveries, headers, work, size=len(data))
        log.error("request %s was given up after %d deliveries", dead.request_id, notice.deliveries)
        if reply := headers.get(subjects.REPLY_HEADER):
            _, attempt = subjects.of_message_id(headers.get(subjects.ID_HEADER, ""))
            failed = Failed(
                request_id=dead.request_id,
                attempt_id=given_up(attempt),
                code="inference_error",
                message=f"the work was given up after {notice.deliveries} deliveries without an answer",
                details={"permanent": True, "attempts": notice.deliveries},
            )
            await self._client.publish(reply, wire.pack([wire.encode(failed)]))
        await self._letters.put(dead, str(found.subject).split(".")[5])
        await self._js.delete_msg(notice.stream, notice.stream_seq)
        await self._payloads.drop(headers)

    async def _on_letter(self, message: Msg) -> None:
        try:
            dead = _letter.decode(message.data)
        except msgspec.DecodeError:
            return
        self.counts[dead.model or message.subject.rpartition(".")[2], dead.reason] += 1


def _decoded(data: bytes) -> Work | None:
    try:
        return wire.decode_work(data)
    except msgspec.DecodeError:
        return None

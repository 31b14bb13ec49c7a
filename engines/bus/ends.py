"""Answers whose end was lost on its way.

What a worker sends while its gateway has no connection is gone. A gap shows with the next event, but an end has none.
So a gateway asks after answers that are silent, and the worker that has ended one says so once more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec
from nats.aio.msg import Msg

from engines.protocol.events import AnyEvent, Failed, WireEvent

REMEMBERED = 10_000
MOST_ASKED = 4096
"""Answers in one question: it has to fit a message of any bus."""


class Silent(msgspec.Struct, array_like=True):
    """An answer that is asked after. ``heard``: how many events of each attempt have come."""

    request_id: str
    heard: dict[str, int]


class Question(msgspec.Struct, array_like=True):
    """From a gateway to all workers; answers go to ``reply_subject``."""

    reply_subject: str
    silent: list[Silent]


_encode = msgspec.msgpack.Encoder().encode
_question = msgspec.msgpack.Decoder(Question)


def questions(reply_subject: str, silent: Iterable[Silent]) -> Iterable[bytes]:
    """The messages that ask after ``silent`` answers."""
    asked = list(silent)
    for start in range(0, len(asked), MOST_ASKED):
        yield _encode(Question(reply_subject, asked[start : start + MOST_ASKED]))


class Ends:
    """The last answers that a worker has ended. ``send`` takes a subject and an event for it."""

    def __init__(self, send: Callable[[str, AnyEvent], None]) -> None:
        self._send = send
        self._ended: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def add(self, last: WireEvent) -> None:
        """An answer has ended with ``last``, on this worker."""
        self._ended[last.request_id] = last.attempt_id, last.seq + 1
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    async def asked(self, message: Msg) -> None:
        """Answer a question. What is still on its way to the gateway arrives first, and then this counts for nothing.

        Raises:
            msgspec.DecodeError: it is none.
        """
        question = _question.decode(message.data)
        for silent in question.silent:
            attempt, sent = self._ended.get(silent.request_id, ("", 0))
            heard = silent.heard.get(attempt, 0)
            if heard < sent:
                lost = Failed(
                    request_id=silent.request_id,
                    attempt_id=attempt,
                    seq=heard,
                    code="transport_failure",
                    message=f"events {heard} to {sent - 1} of the worker's answer were lost",
                    retry_after=1.0,
                )
                self._send(question.reply_subject, lost)

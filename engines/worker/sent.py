"""What a worker has sent lately, for gateways that missed some of it while their connection was away."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from engines.protocol.events import Completed, Event, Failed

KEEP_S = 30.0
"""Seconds for which the events of an attempt that has ended are kept."""
LIMIT = 64 << 20
"""Bytes of events that are kept; beyond them the oldest attempts are forgotten."""


class _Attempt:
    """The encoded events of one attempt from number ``first`` on."""

    def __init__(self, subject: str, attempt: str, first: int) -> None:
        self.subject = subject
        self.attempt = attempt
        self.first = first
        self.events: list[bytes] = []
        self.size = 0
        self.ended_at = 0.0


class Sent:
    """Keeps the latest attempt at each request, from its first event until a while after its last."""

    def __init__(self, limit: int = LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._running: OrderedDict[str, _Attempt] = OrderedDict()
        self._ended: OrderedDict[str, _Attempt] = OrderedDict()
        self._size = 0

    def keep(self, subject: str, event: Event, data: bytes) -> None:
        """Keep an event that goes out to ``subject`` as ``data``."""
        request_id = event.request_id
        attempt = self._running.get(request_id)
        if attempt is None or attempt.attempt != event.attempt_id:
            self._forget(self._ended.pop(request_id, None))
            self._forget(attempt)
            attempt = self._running[request_id] = _Attempt(subject, event.attempt_id, event.seq)
        attempt.events.append(data)
        attempt.size += len(data)
        self._size += len(data)
        if isinstance(event, Completed | Failed):
            del self._running[request_id]
            attempt.ended_at = self._clock()
            self._ended[request_id] = attempt
        self._tidy()

    def again(self, request_id: str, seen: dict[str, int], owned: bool) -> tuple[str, Sequence[bytes]]:
        """Subject and events that the asker lacks, none if there are none here.

        Args:
            request_id: Which request.
            seen: By attempt, the number of the event that is expected next.
            owned: The answer belongs to an attempt of ``seen``; others are no use.
        """
        attempt = self._running.get(request_id) or self._ended.get(request_id)
        if attempt is None or (owned and attempt.attempt not in seen):
            return "", ()
        start = seen.get(attempt.attempt, 0) - attempt.first
        return (attempt.subject, attempt.events[start:]) if start >= 0 else ("", ())

    def _tidy(self) -> None:
        oldest = self._clock() - KEEP_S
        while self._ended and next(iter(self._ended.values())).ended_at < oldest:
            self._forget(self._ended.popitem(last=False)[1])
        while self._size > self._limit and (attempts := self._ended or self._running):
            self._forget(attempts.popitem(last=False)[1])

    def _forget(self, attempt: _Attempt | None) -> None:
        if attempt is not None:
            self._size -= attempt.size

"""What a worker has sent lately, for gateways that missed some of it while their connection was away."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence

from engines.protocol.events import Completed, Event, Failed, Refused

KEEP_S = 30.0
"""Seconds for which the events of an attempt that has ended are kept."""
LIMIT = 64 << 20
"""Bytes of events that are kept; beyond them the oldest attempts are forgotten."""


class _Attempt:
    """The encoded events of one attempt at a request, from number ``first`` on."""

    def __init__(self, subject: str, event: Event) -> None:
        self.subject = subject
        self.request_id = event.request_id
        self.id = event.attempt_id
        self.first = event.seq
        self.events: list[bytes] = []
        self.size = 0
        self.ended_at = 0.0


class Sent:
    """Keeps every attempt, from its first event until a while after its last.

    More than one at a request: when it was delivered anew, its gateway may have heard the beginning of the first.
    """

    def __init__(self, limit: int = LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._running: OrderedDict[str, _Attempt] = OrderedDict()
        self._ended: OrderedDict[str, _Attempt] = OrderedDict()
        self._requests: dict[str, list[_Attempt]] = {}
        self._size = 0

    def keep(self, subject: str, event: Event, data: bytes) -> None:
        """Keep an event that goes out to ``subject`` as ``data``."""
        attempt = self._running.get(event.attempt_id)
        if attempt is None:
            attempt = self._running[event.attempt_id] = _Attempt(subject, event)
            self._requests.setdefault(event.request_id, []).append(attempt)
        attempt.events.append(data)
        attempt.size += len(data)
        self._size += len(data)
        if isinstance(event, Completed | Failed | Refused):
            del self._running[event.attempt_id]
            attempt.ended_at = self._clock()
            self._ended[event.attempt_id] = attempt
        self._tidy()

    def again(self, request_id: str, seen: Mapping[str, int], owned: bool) -> Iterator[tuple[str, Sequence[bytes]]]:
        """Subject and events that the asker lacks, for each attempt that has some.

        Args:
            request_id: Which request.
            seen: By attempt, the number of the event that is expected next.
            owned: The answer belongs to an attempt of ``seen``; others are no use.
        """
        for attempt in self._requests.get(request_id, ()):
            start = seen.get(attempt.id, 0) - attempt.first
            # what lacks its beginning is no use either
            if start >= 0 and (attempt.id in seen or not owned) and (events := attempt.events[start:]):
                yield attempt.subject, events

    def _tidy(self) -> None:
        oldest = self._clock() - KEEP_S
        while self._ended and next(iter(self._ended.values())).ended_at < oldest:
            self._forget(self._ended)
        while self._size > self._limit and (attempts := self._ended or self._running):
            self._forget(attempts)

    def _forget(self, attempts: OrderedDict[str, _Attempt]) -> None:
        """Forget the oldest."""
        _, attempt = attempts.popitem(last=False)
        self._size -= attempt.size
        others = self._requests[attempt.request_id]
        others.remove(attempt)
        if not others:
            del self._requests[attempt.request_id]

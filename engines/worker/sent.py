"""What a worker has sent lately, for gateways that missed some of it while their connection was away."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence

from engines.bus import wire
from engines.protocol.events import Completed, Event, Failed, Refused

KEEP_S = 30.0
"""Seconds for which the events of an attempt that has ended are kept."""
LIMIT = 64 << 20
"""Bytes of events that are kept; beyond them the oldest attempts are forgotten."""
REMEMBERED = 10_000
"""Attempts whose events are forgotten, but not that they have ended."""


class _Attempt:
    """The encoded events of one attempt at a request, from number ``first`` on."""

    def __init__(self, subject: str, event: Event) -> None:
        self.subject = subject
        self.request_id = event.request_id
        self.id = event.attempt_id
        self.first = event.seq
        self.events: list[bytes] = []
        self.size = 0
        self.ended_at: float | None = None

    @property
    def next(self) -> int:
        """The number that an event after these would have."""
        return self.first + len(self.events)

    def since(self, seen: int) -> Sequence[bytes]:
        """The events from number ``seen`` on; when one of them is not kept any more, a failure once all have been sent.

        While the attempt goes on, its gateway finds the gap by itself.
        """
        if seen >= self.first:
            return self.events[seen - self.first :]
        return [] if self.ended_at is None else [self._lost(seen)]

    def forget(self) -> None:
        """Keep the numbers alone."""
        self.first, self.events, self.size = self.next, [], 0

    def _lost(self, seen: int) -> bytes:
        return wire.encode(lost(self.request_id, self.id, seen, self.next - 1))


def lost(request_id: str, attempt_id: str, first: int, last: int) -> Failed:
    """What a gateway is told in place of events that cannot be sent any more."""
    return Failed(
        request_id=request_id,
        attempt_id=attempt_id,
        seq=first,
        code="transport_failure",
        message=f"events {first} to {last} of the worker's answer were lost",
        retry_after=1.0,
    )


class Sent:
    """Keeps every attempt, from its first event until a while after its last.

    More than one at a request: when it was delivered anew, its gateway may have heard the beginning of the first.
    """

    def __init__(self, limit: int = LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._running: OrderedDict[str, _Attempt] = OrderedDict()
        self._ended: OrderedDict[str, _Attempt] = OrderedDict()
        self._forgotten: OrderedDict[str, _Attempt] = OrderedDict()
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
            if attempt.size > self._limit:  # it would push out all others, and itself at last
                self._forget(attempt)
        self._tidy()

    def again(
        self, request_id: str, seen: Mapping[str, int], owned: bool
    ) -> Iterator[tuple[str, str, Sequence[bytes]]]:
        """Attempt, subject and events that the asker lacks, for each attempt that has some.

        Args:
            request_id: Which request.
            seen: By attempt, the number of the event that is expected next.
            owned: The answer belongs to an attempt of ``seen``; others are no use.
        """
        for attempt in self._requests.get(request_id, ()):
            if (attempt.id in seen or not owned) and (events := attempt.since(seen.get(attempt.id, 0))):
                yield attempt.id, attempt.subject, events

    def _tidy(self) -> None:
        oldest = self._clock() - KEEP_S
        while self._ended and (next(iter(self._ended.values())).ended_at or 0.0) < oldest:
            self._forget(next(iter(self._ended.values())))
        while self._size > self._limit and (self._ended or self._running):
            if self._ended:
                self._forget(next(iter(self._ended.values())))
            else:
                _, attempt = self._running.popitem(last=False)
                self._size -= attempt.size
                self._drop(attempt)
        while len(self._forgotten) > REMEMBERED:
            self._drop(self._forgotten.popitem(last=False)[1])

    def _forget(self, attempt: _Attempt) -> None:
        """Forget the events of an attempt that has ended, and remember that it did."""
        del self._ended[attempt.id]
        self._size -= attempt.size
        attempt.forget()
        self._forgotten[attempt.id] = attempt

    def _drop(self, attempt: _Attempt) -> None:
        others = self._requests[attempt.request_id]
        others.remove(attempt)
        if not others:
            del self._requests[attempt.request_id]

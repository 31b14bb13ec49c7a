"""Which inputs run next: fair between requests, alike in length within a batch. A plain structure with one owner."""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

PADDING_SHARE = 8
PADDING_ALLOWED = 64


@dataclass(slots=True, eq=False)
class Piece:
    """One input of a request: ``index`` is its place there, ``key`` sorts by length and then by arrival."""

    request: Any
    index: int
    length: int
    features: Any
    group: Hashable
    key: tuple[int, int] = (0, 0)
    taken: bool = False


@dataclass(slots=True)
class _Flow:
    """The waiting pieces of one request, longest last; taken ones linger until they come to the end.

    ``served`` counts the tokens this flow was given, on the clock of the schedule.
    """

    served: float
    pieces: list[Piece] = field(default_factory=list)
    waiting: int = 0


_BY_KEY = attrgetter("key")


class Schedule:
    """Start-time fair queueing over requests, by tokens.

    The request that got the fewest tokens goes first and gives its longest piece; the batch is filled with the
    pieces nearest to it in length, whosever they are. Each flow pays for its pieces, so a request of hundreds of
    texts cannot starve one of a single text, and none waits for ever: the clock only moves on.
    """

    def __init__(self, *, padded: bool = True) -> None:
        self._padded = padded
        self._flows: dict[Any, _Flow] = {}
        self._groups: dict[Hashable, list[Piece]] = {}
        self._clock = 0.0
        self._arrivals = 0
        self.waiting_tokens = 0
        self.waiting = 0

    def add(self, pieces: Iterable[Piece]) -> None:
        """Add waiting pieces; a request may be added in several portions."""
        touched: set[Any] = set()
        for piece in pieces:
            self._arrivals += 1
            piece.key = (piece.length, self._arrivals)
            flow = self._flows.get(piece.request)
            if flow is None:
                flow = self._flows[piece.request] = _Flow(self._clock)
            flow.pieces.append(piece)
            flow.waiting += 1
            touched.add(piece.request)
            bisect.insort(self._groups.setdefault(piece.group, []), piece, key=_BY_KEY)
            self.waiting_tokens += piece.length
            self.waiting += 1
        for request in touched:
            self._flows[request].pieces.sort(key=_BY_KEY)

    def drop(self, request: Any) -> None:
        """Forget the waiting pieces of a request."""
        flow = self._flows.get(request)
        if flow is None:
            return
        for piece in flow.pieces:
            if not piece.taken:
                group = self._groups[piece.group]
                self._remove(group, bisect.bisect_left(group, piece.key, key=_BY_KEY), 1)

    def take(self, budget: int) -> list[Piece]:
        """The next batch, longest piece first: at most ``budget`` tokens unless a single piece is longer.

        Empty only when nothing waits.
        """
        if not self._flows:
            return []
        flow = min(self._flows.values(), key=lambda flow: flow.served)
        self._clock = max(self._clock, flow.served)
        while flow.pieces[-1].taken:
            flow.pieces.pop()
        anchor = flow.pieces[-1]
        group = self._groups[anchor.group]
        low, high = self._window(group, bisect.bisect_left(group, anchor.key, key=_BY_KEY), budget)
        batch = self._remove(group, low, high - low)
        batch.reverse()
        return batch

    def _window(self, group: list[Piece], anchor: int, budget: int) -> tuple[int, int]:
        """Bounds of the batch around ``anchor``: neighbours in length while budget and padding allow."""
        low, high = anchor, anchor + 1
        total = group[anchor].length
        while True:
            width = group[high - 1].length
            down = width - group[low - 1].length if low > 0 else None
            up = group[high].length - width if high < len(group) else None
            if down is None and up is None:
                return low, high
            grow_up = down is None or (up is not None and up < down)
            piece = group[high] if grow_up else group[low - 1]
            if grow_up:
                width = piece.length
            area = width * (high - low + 1) if self._padded else total + piece.length
            padding = area - total - piece.length
            if area > budget or padding > max(PADDING_ALLOWED, area // PADDING_SHARE):
                return low, high
            total += piece.length
            low, high = (low, high + 1) if grow_up else (low - 1, high)

    def _remove(self, group: list[Piece], start: int, count: int) -> list[Piece]:
        """Take ``count`` pieces of a group out, paid for by their flows."""
        pieces = group[start : start + count]
        del group[start : start + count]
        if not group:
            del self._groups[pieces[0].group]
        for piece in pieces:
            piece.taken = True
            flow = self._flows[piece.request]
            flow.served += piece.length
            flow.waiting -= 1
            self.waiting_tokens -= piece.length
            if not flow.waiting:
                del self._flows[piece.request]
        self.waiting -= len(pieces)
        return pieces

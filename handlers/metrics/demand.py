"""Work that found no worker: what an autoscaler looks at to start some."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, NamedTuple

WINDOW: Final = 60
"""Seconds that a refused request counts: it was told to come back after as many."""
KEPT: Final = 1000
"""Different wants that are told apart. Machine profiles may be a client's words where the operator lists none."""
OTHER: Final = "other"


class Want(NamedTuple):
    """What a refused request needed. An empty ``machine_profile``: any."""

    pool: str
    machine_profile: str
    bundle: str


class Demand:
    """Requests of the last minute that no worker was there for, by what they needed."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._refused: dict[Want, deque[tuple[int, int]]] = {}

    def add(self, want: Want) -> None:
        """One more request that was told to come back."""
        if want not in self._refused and len(self._refused) >= KEPT:
            self._refused = {known: counts for known, counts in self._refused.items() if self._recent(counts)}
            if len(self._refused) >= KEPT:
                want = want._replace(machine_profile=OTHER)
        counts = self._refused.setdefault(want, deque())
        second, count = int(self._clock()), 0
        if counts and counts[-1][0] == second:
            count = counts.pop()[1]
        counts.append((second, count + 1))
        self._recent(counts)

    def refused(self) -> dict[Want, int]:
        """How many of the last minute, by what they needed; 0 for what was needed before."""
        return {want: self._recent(counts) for want, counts in self._refused.items()}

    def _recent(self, counts: deque[tuple[int, int]]) -> int:
        """The sum over the window. Forgets what is older."""
        since = self._clock() - WINDOW
        while counts and counts[0][0] <= since:
            counts.popleft()
        return sum(count for _, count in counts)

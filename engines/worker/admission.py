"""What a worker takes: at most so many requests, and generations only as far as its key-value cache goes round.

An engine queues and preempts by itself, so the budget is several times its cache: enough to keep it busy, and not so
much that work waits here which another worker could do. Work that was meant for this worker has the rest of its lane to
go to, and is refused beyond the budget; what comes from the lane was asked for, and is refused only far beyond.
"""

from __future__ import annotations

from collections.abc import Callable

from engines.protocol.cost import at_once
from engines.protocol.work import Work

OVERCOMMIT = 4
"""How many times the cache of the engines may be promised: most answers end before their limit."""
SLACK = 2
"""How many times the budget the lane's work may take: what was asked for before its size was known."""
SMOOTHING = 0.1


class Admission:
    """Counts what is at work. ``cache``: tokens that the caches of the loaded engines hold, 0 where none says."""

    def __init__(self, most: int, budget: int, cache: Callable[[], int]) -> None:
        """``most`` requests at a time; ``budget`` in tokens, 0: by the engines' caches."""
        self._most = most
        self._given = budget
        self._cache = cache
        self._costs: dict[str, int] = {}
        self._tokens = 0
        self._usual = 0.0

    @property
    def tokens(self) -> int:
        """Estimated tokens of the generations at work."""
        return self._tokens

    def room(self, opening: int = 0) -> int:
        """How many more requests may come besides ``opening`` that have, if they are like those before."""
        free = self._most - len(self._costs)
        budget = self._budget()
        if budget and self._usual:
            free = min(free, int((budget - self._tokens) / self._usual))
        return max(0, free - opening)

    def fits(self, work: Work, *, direct: bool) -> bool:
        """Whether there is room for it. One that is larger than all of the budget may run alone."""
        budget = self._budget() * (1 if direct else SLACK)
        tokens = at_once(work)
        if not budget or not self._tokens or not tokens:
            return len(self._costs) < self._most or not direct
        return self._tokens + tokens <= budget

    def begin(self, work: Work) -> None:
        tokens = at_once(work)
        self._costs[work.request_id] = tokens
        self._tokens += tokens
        if tokens:
            self._usual += (tokens - self._usual) * (SMOOTHING if self._usual else 1.0)

    def end(self, request_id: str) -> None:
        self._tokens -= self._costs.pop(request_id, 0)

    def _budget(self) -> int:
        return self._given or self._cache() * OVERCOMMIT

"""Recent requests and tokens per second, for people who watch: a sliding window of this gateway alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, TypedDict

WINDOW: Final = 10
"""Seconds over which rates and quantiles are taken."""
KEPT: Final = 1024
"""Most latencies that are kept: quantiles of more would cost the event loop milliseconds."""


class Rates(TypedDict):
    """``throughput`` of a frame: rates per second, times in milliseconds, ``None`` where nothing was measured."""

    window_s: int
    requests_per_s: float
    errors_per_s: float
    tokens_per_s: float
    latency_p50_ms: float | None
    latency_p95_ms: float | None
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None


class Throughput:
    """Counts by the second; a request with a status of 500 and more is an error."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._born = clock()
        self._seconds: deque[list[int]] = deque(maxlen=WINDOW + 1)
        self._latencies: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._firsts: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._rates: tuple[int, Rates] | None = None

    def request(self, seconds: float, status: int) -> None:
        """An inference request was answered after ``seconds``."""
        now = self._clock()
        slot = self._slot(int(now))
        slot[1] += 1
        slot[2] += status >= 500
        self._latencies.append((now, seconds))

    def tokens(self, count: int) -> None:
        """Tokens were read or written by a model."""
        self._slot(int(self._clock()))[3] += count

    def first_token(self, seconds: float) -> None:
        """A stream gave its first token after ``seconds``."""
        self._firsts.append((self._clock(), seconds))

    def rates(self) -> Rates:
        """The window that ends with the last full second; computed once a second, however many ask."""
        now = int(self._clock())
        if self._rates is not None and self._rates[0] == now:
            return self._rates[1]
        span = min(WINDOW, max(1, now - int(self._born)))
        slots = [slot for slot in self._seconds if now - span <= slot[0] < now]
        requests, errors, tokens = (sum(slot[i] for slot in slots) / span for i in (1, 2, 3))
        latency, first = (self._quantiles(kept) for kept in (self._latencies, self._firsts))
        rates = Rates(
            window_s=span,
            requests_per_s=round(requests, 2),
            errors_per_s=round(errors, 2),
            tokens_per_s=round(tokens, 1),
            latency_p50_ms=latency[0],
            latency_p95_ms=latency[1],
            ttft_p50_ms=first[0],
            ttft_p95_ms=first[1],
        )
        self._rates = now, rates
        return rates

    def _slot(self, second: int) -> list[int]:
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0, 0, 0])
        return self._seconds[-1]

    def _quantiles(self, kept: Sequence[tuple[float, float]]) -> tuple[float | None, float | None]:
        since = self._clock() - WINDOW
        recent = sorted(seconds for at, seconds in kept if at >= since)
        if not recent:
            return None, None
        last = len(recent) - 1
        return round(recent[round(last * 0.5)] * 1e3, 1), round(recent[round(last * 0.95)] * 1e3, 1)

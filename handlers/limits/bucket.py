"""A token bucket: a rate that is kept in the long run, and what may come at once."""

from __future__ import annotations


class Bucket:
    """``rate`` a second, up to ``burst`` saved. Times are in seconds of any steady clock."""

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at = now

    def take(self, now: float) -> float:
        """Take one. Returns 0, or after how many seconds there will be one: then nothing was taken."""
        self._fill(now)
        if self._level >= 1.0:
            self._level -= 1.0
            return 0.0
        return (1.0 - self._level) / self._rate

    def full(self, now: float) -> bool:
        """Whether it has forgotten everything that was taken."""
        self._fill(now)
        return self._level >= self._burst

    def _fill(self, now: float) -> None:
        self._level = min(self._burst, self._level + (now - self._at) * self._rate)
        self._at = now

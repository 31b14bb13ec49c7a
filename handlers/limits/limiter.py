"""Who asks for how much: rates, requests at a time and estimated tokens, by caller and for the whole gateway."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from hashlib import sha256
from itertools import islice
from time import monotonic
from typing import Final, Literal

from ..errors import Capacity, TooMany
from ..settings import Settings
from .bucket import Bucket

MOST_CALLERS: Final = 10_000
"""Callers that are remembered. Those that have nothing running and nothing to be reproached with go first."""
BUSY_RETRY: Final = 5.0
OWN_RETRY: Final = 1.0


Limit = Literal["rate", "requests", "tokens", "gateway"]


class Caller:
    """What one caller has now. ``tokens`` are estimates (``engines.protocol.cost``)."""

    __slots__ = ("bucket", "requests", "tokens")

    def __init__(self, bucket: Bucket | None) -> None:
        self.bucket = bucket
        self.requests = 0
        self.tokens = 0


class Lease:
    """The share of one request. It grows when the request's size is known, and is given back once."""

    __slots__ = ("_caller", "_limiter", "_tokens")

    def __init__(self, limiter: Limiter, caller: Caller) -> None:
        self._limiter = limiter
        self._caller: Caller | None = caller
        self._tokens = 0

    def charge(self, tokens: int) -> None:
        """The request is worth ``tokens`` more.

        Raises:
            TooMany: that is more than its caller may have at a time.
            Capacity: that is more than the gateway takes at a time.
        """
        if self._caller is not None:
            self._limiter.charge(self._caller, tokens)
            self._tokens += tokens

    def release(self) -> None:
        """The request has ended."""
        caller, self._caller = self._caller, None
        if caller is not None:
            caller.requests -= 1
            self._limiter.refund(caller, self._tokens)


LEASE: ContextVar[Lease | None] = ContextVar("lease", default=None)
"""Of the request that the current task serves."""


class Limiter:
    """Belongs to the event loop. Without limits by the operator only the gateway's whole is bounded."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        self._rate = settings.rate_limit_rps
        self._burst = settings.rate_limit_burst or max(1.0, settings.rate_limit_rps or 0.0)
        self._concurrent = settings.max_concurrent_requests
        self._own = settings.max_pending_tokens_per_caller
        self._all = settings.max_pending_tokens
        self._told_apart = not (self._rate is None and self._concurrent is None and self._own is None)
        self._clock = clock
        self._anyone = Caller(None)
        self._callers: OrderedDict[bytes, Caller] = OrderedDict()
        self._tokens = 0
        self.refused: Counter[Limit] = Counter()
        """Requests that were refused, by the limit that they met."""

    @property
    def tokens(self) -> int:
        """Estimated tokens of all requests that run."""
        return self._tokens

    def enter(self, token: bytes | None) -> Lease:
        """Begin a request of whoever has this bearer token; those without one are one caller.

        Raises:
            TooMany: the caller has too many a second, or too many at a time.
        """
        caller = self._caller(token) if self._told_apart else self._anyone
        if self._concurrent is not None and caller.requests >= self._concurrent:
            self.refused["requests"] += 1
            raise TooMany(f"At most {self._concurrent} requests at a time are allowed for this token", OWN_RETRY)
        if caller.bucket is not None and (wait := caller.bucket.take(self._clock())):
            self.refused["rate"] += 1
            raise TooMany(f"At most {self._rate:g} requests a second are allowed for this token", wait)
        caller.requests += 1
        lease = Lease(self, caller)
        LEASE.set(lease)
        return lease

    def charge(self, caller: Caller, tokens: int) -> None:
        """See ``Lease.charge``. One request alone may be larger than the limit."""
        if self._own is not None and caller.tokens and caller.tokens + tokens > self._own:
            self.refused["tokens"] += 1
            raise TooMany(f"At most {self._own} tokens at a time are allowed for this token", OWN_RETRY)
        if self._tokens and self._tokens + tokens > self._all:
            self.refused["gateway"] += 1
            raise Capacity("The gateway has as much work as it takes", BUSY_RETRY)
        caller.tokens += tokens
        self._tokens += tokens

    def refund(self, caller: Caller, tokens: int) -> None:
        caller.tokens -= tokens
        self._tokens -= tokens

    def _caller(self, token: bytes | None) -> Caller:
        key = b"" if token is None else sha256(token).digest()
        caller = self._callers.get(key)
        if caller is None:
            now = self._clock()
            bucket = None if self._rate is None else Bucket(self._rate, self._burst, now)
            caller = self._callers[key] = Caller(bucket)
            if len(self._callers) > MOST_CALLERS:
                self._forget(now)
        else:
            self._callers.move_to_end(key)
        return caller

    def _forget(self, now: float) -> None:
        """Make room: the one that was idle longest goes, else the oldest one without a request."""
        oldest = list(islice(self._callers.items(), MOST_CALLERS // 100))
        idle = [key for key, caller in oldest if not caller.requests]
        rested = [key for key in idle if (bucket := self._callers[key].bucket) is None or bucket.full(now)]
        for key in rested or idle[:1]:
            del self._callers[key]

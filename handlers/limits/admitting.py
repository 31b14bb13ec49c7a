"""A dispatcher that weighs work before it hands it over."""

from __future__ import annotations

from engines.protocol.cluster import Answer, Dispatcher, Route, Timeouts
from engines.protocol.cost import cost
from engines.protocol.work import Work

from .limiter import LEASE


class Admitting:
    """A ``Dispatcher`` over another one: work is charged to the lease of the request that it belongs to."""

    def __init__(self, inner: Dispatcher) -> None:
        self._inner = inner

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Answer:
        """See ``engines.protocol.cluster.Dispatcher``.

        Raises:
            TooMany, Capacity: see ``Lease.charge``.
        """
        lease = LEASE.get()
        if lease is not None:
            lease.charge(cost(work))
        return await self._inner.submit(work, route, timeouts)

"""How much work each lane of the cluster has: what an autoscaler sizes the workers of a lane by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class LaneLoad(msgspec.Struct, kw_only=True, frozen=True):
    """Requests of the workers of one pool, machine profile and bundle.

    ``open`` are this gateway's own that wait or run. ``queued`` wait in the queue of the cluster, ``unacknowledged``
    were given to workers that have not settled them; both count the work of all gateways and are ``None`` where the
    bus does not tell. Only ``open`` has streams that have begun, which are settled, and work sent to one worker alone.
    """

    pool: str
    machine_profile: str
    bundle: str
    open: int = 0
    queued: int | None = None
    unacknowledged: int | None = None


class Lanes(Protocol):
    """The lanes as a gateway knows them."""

    async def load(self) -> Sequence[LaneLoad]:
        """All lanes that have workers, work or a queue, sorted. Never fails; takes a second at most."""
        ...


class NoLanes:
    """Lanes of a gateway without a bus."""

    async def load(self) -> Sequence[LaneLoad]:
        return ()

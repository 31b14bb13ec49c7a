"""Pools: named claims on workers, as gateways, workers and the store that they share know them (contract I)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from .cluster import WorkerStatus

PoolState = Literal["pending", "active", "expired"]

DEFAULT_POOL = "default"
DEFAULT_TTL = 1200
"""Seconds that a pool lives after its last renewal, where its spec names none."""


class PoolSpec(msgspec.Struct, kw_only=True, frozen=True):
    """What a pool asks for. Names are in lower case; ``queue_pool`` is the pool of the workers that it draws on.

    ``gpus`` has how many workers of each machine profile make it active, ``gpu_caps`` how many it may draw on at most
    (0: none); every profile of ``gpu_caps`` is in ``gpus`` too. ``pinned_models`` are canonical names
    (``model`` or ``model:profile``) that its workers keep loaded.
    """

    name: str
    queue_pool: str = DEFAULT_POOL
    bundle: str | None = None
    gpus: dict[str, int] = {}
    gpu_caps: dict[str, int] = {}
    ttl_seconds: int | None = None
    minimum_worker_count: int = 0
    pinned_models: tuple[str, ...] = ()

    def cap(self, machine_profile: str) -> int | None:
        """How many workers of a machine profile the pool may draw on; ``None``: no limit. What it does not list: 0."""
        wanted = machine_profile.lower()
        for profile, cap in self.gpu_caps.items():
            if profile.lower() == wanted:
                return cap
        return None if any(profile.lower() == wanted for profile in self.gpus) else 0


class PoolRecord(msgspec.Struct, kw_only=True, frozen=True):
    """A pool as it is stored. Times are in seconds since the epoch. A ``static`` one is the operator's."""

    spec: PoolSpec
    created_at: float
    last_renewed: float
    static: bool = False

    def expired(self, now: float) -> bool:
        if self.static:
            return False
        ttl = DEFAULT_TTL if self.spec.ttl_seconds is None else self.spec.ttl_seconds
        return now > self.last_renewed + ttl


class PoolStatus(msgspec.Struct, kw_only=True, frozen=True):
    """What a pool has: its state and the workers it draws on, sorted by machine profile, then name."""

    state: PoolState
    workers: tuple[WorkerStatus, ...] = ()


class UnknownPool(LookupError):
    """No pool has that name."""


class PoolsUnavailable(Exception):
    """The store of the pools cannot be reached."""


class Pools(Protocol):
    """The pools of the cluster: read from this process's copy, changed in the store that all gateways share."""

    def all(self) -> Sequence[PoolRecord]:
        """All pools that were created, sorted by name; one that has expired is listed until it is swept."""
        ...

    def find(self, name: str) -> PoolRecord | None:
        """The pool of that name, if it is there and has not expired. ``name`` may have any case."""
        ...

    async def get(self, name: str) -> PoolRecord:
        """Like ``find``, and asks the store for one that this process has not heard of yet. Expired ones included.

        Raises:
            UnknownPool, PoolsUnavailable.
        """
        ...

    async def put(self, spec: PoolSpec) -> PoolRecord:
        """Create a pool, update it to another spec, or renew it with the same.

        Raises:
            PoolsUnavailable.
        """
        ...

    async def renew(self, name: str) -> PoolRecord:
        """Let a pool live on; one that has expired too, until it is swept.

        Raises:
            UnknownPool, PoolsUnavailable.
        """
        ...

    async def delete(self, name: str) -> None:
        """Remove a pool; one that has expired too.

        Raises:
            UnknownPool, PoolsUnavailable.
        """
        ...


class NoPools:
    """Pools of a gateway without a store: none, and none can be made."""

    def all(self) -> Sequence[PoolRecord]:
        return ()

    def find(self, name: str) -> PoolRecord | None:
        return None

    async def get(self, name: str) -> PoolRecord:
        raise UnknownPool(name)

    async def put(self, spec: PoolSpec) -> PoolRecord:
        raise PoolsUnavailable("this gateway has no store for pools")

    async def renew(self, name: str) -> PoolRecord:
        raise UnknownPool(name)

    async def delete(self, name: str) -> None:
        raise UnknownPool(name)


def status(record: PoolRecord, workers: Iterable[WorkerStatus], now: float) -> PoolStatus:
    """State and workers of a pool. Active: every machine profile of ``gpus`` has that many healthy workers.

    Workers are taken in the order of their names, up to the cap of their machine profile. An operator's own pool takes
    all of its workers and is active with the first.
    """
    if record.expired(now):
        return PoolStatus(state="expired")
    spec = record.spec
    fit = [
        worker
        for worker in workers
        if worker.healthy and worker.pool == spec.queue_pool and spec.bundle in (None, worker.bundle)
    ]
    if record.static:
        taken = sorted(fit, key=lambda worker: (worker.machine_profile, worker.name))
        return PoolStatus(state="active" if taken else "pending", workers=tuple(taken))
    taken = []
    met = True
    for profile, wanted in sorted(spec.gpus.items()):
        have = sorted(
            (worker for worker in fit if worker.machine_profile.lower() == profile.lower()),
            key=lambda worker: worker.name,
        )[: spec.cap(profile)]
        met &= len(have) >= wanted
        taken += have
    return PoolStatus(state="active" if met else "pending", workers=tuple(taken))


def warm_floor(spec: PoolSpec) -> dict[str, int]:
    """How many workers of each machine profile the pool wants kept, however little there is to do.

    They are ``minimum_worker_count`` in all, and one where it pins models, which nobody else could keep loaded.
    Profiles get what ``gpus`` asks for, in the order of their names; what is left goes to the first with room. Caps are
    kept even where that leaves fewer.
    """
    left = max(spec.minimum_worker_count, bool(spec.pinned_models))
    floor: dict[str, int] = {}
    for asked in (True, False):
        for profile, count in sorted(spec.gpus.items()):
            has, cap = floor.get(profile, 0), spec.cap(profile)
            room = left if cap is None else cap - has
            more = min(left, room, count if asked else left)
            if more > 0:
                floor[profile] = has + more
                left -= more
    return floor


def pinned(records: Iterable[PoolRecord], worker: WorkerStatus, now: float) -> set[str]:
    """Models that the pools want a worker to keep loaded, so far as its bundle can run them."""
    return {
        name
        for record in records
        if not record.expired(now) and _draws_on(record.spec, worker)
        for name in record.spec.pinned_models
    }


def _draws_on(spec: PoolSpec, worker: WorkerStatus) -> bool:
    return (
        worker.pool == spec.queue_pool
        and spec.bundle in (None, worker.bundle)
        and spec.cap(worker.machine_profile) != 0
    )


def static_record(name: str, profiles: Mapping[str, int], created_at: float) -> PoolRecord:
    """A pool of the operator's: the workers of one queue."""
    spec = PoolSpec(name=name, queue_pool=name, gpus=dict(profiles))
    return PoolRecord(spec=spec, created_at=created_at, last_renewed=created_at, static=True)

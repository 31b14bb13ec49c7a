"""Pools in memory, and a cluster whose workers a test sets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from litestar.testing import TestClient

import app
from engines.catalog import Catalog
from engines.protocol.cluster import (
    Answer,
    BusCounts,
    DispatchError,
    ModelStatus,
    PendingGenerations,
    Route,
    Timeouts,
    Traffic,
    WorkerStatus,
)
from engines.protocol.pools import PoolRecord, PoolSpec, PoolsUnavailable, UnknownPool
from engines.protocol.work import Work
from handlers.http.access import AccessLog
from handlers.services import Services
from handlers.settings import Settings

CATALOG = Catalog.from_env({})


class MemoryPools:
    """``Pools`` with a clock of its own; ``down`` makes the store fail."""

    def __init__(self) -> None:
        self.records: dict[str, PoolRecord] = {}
        self.offset = 0.0
        self.down = False

    def now(self) -> float:
        return time.time() + self.offset

    def all(self) -> Sequence[PoolRecord]:
        return [record for _, record in sorted(self.records.items())]

    def find(self, name: str) -> PoolRecord | None:
        record = self.records.get(name.lower())
        return None if record is None or record.expired(self.now()) else record

    async def get(self, name: str) -> PoolRecord:
        if name.lower() not in self.records:
            raise UnknownPool(name)
        return self.records[name.lower()]

    async def put(self, spec: PoolSpec) -> PoolRecord:
        if self.down:
            raise PoolsUnavailable("down")
        known = self.find(spec.name)
        now = self.now()
        made = PoolRecord(spec=spec, created_at=known.created_at if known else now, last_renewed=now)
        self.records[spec.name] = made
        return made

    async def renew(self, name: str) -> PoolRecord:
        known = await self.get(name)
        self.records[name.lower()] = msgspec.structs.replace(known, last_renewed=self.now())
        return self.records[name.lower()]

    async def delete(self, name: str) -> None:
        del self.records[(await self.get(name)).spec.name]


class FakeCluster:
    """Workers as a test wants them; work goes nowhere, and ``routes`` remembers where it was sent."""

    connected = True

    def __init__(self, *workers: WorkerStatus) -> None:
        self.listed = list(workers)
        self.routes: list[Route] = []
        self.sent: list[Work] = []

    def workers(self) -> Sequence[WorkerStatus]:
        return sorted(self.listed, key=lambda worker: worker.name)

    def model_status(self, name: str) -> ModelStatus:
        return ModelStatus(name=name, state="available")

    def traffic(self) -> Traffic:
        return Traffic()

    def bus_counts(self) -> BusCounts:
        return BusCounts(payload_offloads=2)

    def dead_letters(self) -> dict[tuple[str, str], int]:
        return {}

    def pending_generations(self) -> Sequence[PendingGenerations]:
        return ()

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Answer:
        self.routes.append(route)
        self.sent.append(work)
        raise DispatchError("provisioning", "no worker is running yet", retry_after=60)


class World:
    """A gateway over fakes."""

    def __init__(self, *workers: WorkerStatus, catalog: Any = CATALOG, **settings: Any) -> None:
        self.cluster = FakeCluster(*workers)
        self.pools = MemoryPools()
        self.services = Services(catalog, self.cluster, self.cluster, Settings(**settings), self.pools)

    @contextmanager
    def client(self) -> Iterator[TestClient[Any]]:
        with TestClient(app.create_app(self.services, AccessLog(None))) as client:
            yield client


def worker(name: str, profile: str = "l4", pool: str = "default", **more: Any) -> WorkerStatus:
    return WorkerStatus(name=name, machine_profile=profile, pool=pool, **more)


def three_bundles() -> Catalog:
    """The embedded catalog in bundles of two engines that run all of it, and of a third that runs nothing."""
    (first,) = CATALOG.bundles()
    changed = msgspec.structs.replace
    bundles = [
        first,
        changed(first, name="second", engine="SGLang", priority=200),
        changed(first, name="empty", engine="onnx", adapters=("none",)),
    ]
    return Catalog(list(CATALOG.models()), bundles)

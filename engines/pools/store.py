"""The pools of a gateway: changes are compare-and-set on the bucket, reads come from the copy of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
from nats.aio.client import Client

from engines.bus.connection import connect
from engines.bus.settings import BusSettings
from engines.bus.tasks import ended
from engines.protocol.pools import PoolRecord, PoolSpec, PoolsUnavailable, UnknownPool

from .bucket import FAULTS, Bucket, Conflict

log = logging.getLogger("sie.pools")

T = TypeVar("T")

PATIENCE = 2.0
SWEEP_EVERY = 1.0
TRIES = 20


class NatsPools:
    """``engines.protocol.pools.Pools``. Usable before ``start``: there are no pools until then."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._client: Client | None = None
        self._bucket: Bucket | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._up = asyncio.Event()

    async def start(self, settings: BusSettings) -> None:
        """Connect and follow the bucket; returns once the bus is there."""

        async def reconnected() -> None:
            if self._bucket is not None:
                self._bucket.reconnected()

        self._client = await connect(settings, "pools", on_reconnect=reconnected)
        self._bucket = Bucket(self._client, settings)
        self._bucket.start()
        self._sweeper = asyncio.create_task(self._sweep(), name="pools-sweep")
        self._up.set()

    async def stop(self) -> None:
        """Leave the bus; the pools stay."""
        await ended(self._sweeper)
        if self._bucket is not None:
            await self._bucket.stop()
        if self._client is not None:
            with contextlib.suppress(Exception):  # leaving a bus that is already gone
                async with asyncio.timeout(2.0):
                    await self._client.close()

    def all(self) -> Sequence[PoolRecord]:
        if self._bucket is None:
            return ()
        return [entry.record for _, entry in sorted(self._bucket.entries().items())]

    def find(self, name: str) -> PoolRecord | None:
        entry = self._bucket.entries().get(name.lower()) if self._bucket is not None else None
        if entry is None or entry.record.expired(self._clock()):
            return None
        return entry.record

    async def get(self, name: str) -> PoolRecord:
        async def get(bucket: Bucket) -> PoolRecord:
            entry = bucket.entries().get(name.lower()) or await bucket.read(name.lower())
            if entry is None:
                raise UnknownPool(name)
            return entry.record

        return await self._with(get)

    async def put(self, spec: PoolSpec) -> PoolRecord:
        async def put(bucket: Bucket) -> PoolRecord:
            now = self._clock()
            entry = await bucket.read(spec.name)
            record = PoolRecord(spec=spec, created_at=now, last_renewed=now)
            if entry is not None and not entry.record.expired(now):
                record = msgspec.structs.replace(record, created_at=entry.record.created_at)
            return (await bucket.write(spec.name, record, entry)).record

        return await self._with(put)

    async def renew(self, name: str) -> PoolRecord:
        async def renew(bucket: Bucket) -> PoolRecord:
            now = self._clock()
            entry = await bucket.read(name.lower())
            if entry is None:
                raise UnknownPool(name)
            record = msgspec.structs.replace(entry.record, last_renewed=now)
            return (await bucket.write(name.lower(), record, entry)).record

        return await self._with(renew)

    async def delete(self, name: str) -> None:
        async def delete(bucket: Bucket) -> None:
            entry = await bucket.read(name.lower())
            if entry is None:
                raise UnknownPool(name)
            await bucket.remove(name.lower(), entry)

        await self._with(delete)

    async def _with(self, action: Callable[[Bucket], Awaitable[T]]) -> T:
        """Run an action on the bucket, again while others change what it read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._up.wait()
        if self._bucket is None:
            raise PoolsUnavailable("the message bus is not connected")
        try:
            for _ in range(TRIES):
                with contextlib.suppress(Conflict):
                    return await action(self._bucket)
        except FAULTS as error:
            raise PoolsUnavailable("the store of the pools does not answer") from error
        raise PoolsUnavailable("the pool is being changed by others all the time")

    async def _sweep(self) -> None:
        """Remove what has expired, and old traces of removals. Every gateway does; what was renewed meanwhile stays."""
        while True:
            await asyncio.sleep(SWEEP_EVERY)
            assert self._bucket is not None
            now = self._clock()
            for key, entry in list(self._bucket.entries().items()):
                if entry.record.expired(now):
                    with contextlib.suppress(Conflict, *FAULTS):
                        await self._bucket.remove(key, entry)
                        log.info("pools: %s has expired", key)
            with contextlib.suppress(*FAULTS):
                await self._bucket.tidy()

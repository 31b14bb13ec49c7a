"""What a worker follows beside its work: the catalog's files, and the models that the pools want kept loaded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from nats.aio.client import Client

from engines.bus.settings import BusSettings
from engines.catalog import Catalog, Reloader
from engines.pools import Bucket
from engines.protocol.catalog import ModelEntry, Profile, Resolved
from engines.protocol.cluster import WorkerStatus
from engines.protocol.pools import pinned

from .models import Models

log = logging.getLogger("sie.worker")

LOOK_EVERY = 30.0
"""Seconds after which pins are worked out anew without any change: pools expire, failed loads are tried again."""


class Keeper:
    """Keeps ``models`` as the catalog and the pools want them. ``changed``: the catalog has a new hash."""

    def __init__(self, catalog: Catalog, models: Models, identity: WorkerStatus, changed: Callable[[], None]) -> None:
        self._catalog = catalog
        self._models = models
        self._identity = identity
        self._changed = changed
        self._again = asyncio.Event()
        self._bucket: Bucket | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def reconnected(self) -> None:
        """The bus is back."""
        if self._bucket is not None:
            self._bucket.reconnected()

    async def run(self, client: Client, bus: BusSettings) -> None:
        """Follow both for ever."""
        self._bucket = Bucket(client, bus, self._again.set, keeper=False)
        self._bucket.start()
        reloading = asyncio.create_task(Reloader(self._catalog, changed=self._renew).run(), name="catalog-reload")
        try:
            await self._follow(self._bucket)
        finally:
            reloading.cancel()
            for task in self._tasks.values():
                task.cancel()
            await self._bucket.stop()

    async def _follow(self, bucket: Bucket) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._again.wait()
            self._again.clear()
            records = [entry.record for entry in bucket.entries().values()]
            self._pin(pinned(records, self._identity, time.time()))

    def _pin(self, names: set[str]) -> None:
        """Those that the bundle of this worker can run; the others are for workers of other bundles."""
        found = {name: one for name in sorted(names) if (one := self._find(name)) and self._runs(one[0])}
        self._models.pin(found)
        for name in set(self._tasks) - set(found):
            self._tasks.pop(name)  # a load that has begun is finished
        for name, (entry, profile) in found.items():
            running = self._tasks.get(name)
            if running is None or running.done():
                self._tasks[name] = asyncio.create_task(self._models.load(entry, profile), name=f"pin {name}")

    def _runs(self, entry: ModelEntry) -> bool:
        return self._identity.bundle in entry.bundles

    def _renew(self) -> None:
        self._models.renew(self._find)
        self._again.set()
        self._changed()

    def _find(self, name: str) -> tuple[ModelEntry, Profile] | None:
        try:
            found: Resolved = self._catalog.resolve(name)
        except LookupError:
            return None
        return found.model, found.profile

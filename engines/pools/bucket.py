"""The bucket that holds the pools, and the copy of it that a process keeps."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StorageType
from nats.js.errors import (
    APIError,
    BadRequestError,
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NotFoundError,
)
from nats.js.kv import KeyValue

from engines.bus.settings import BusSettings
from engines.bus.tasks import ended
from engines.protocol.pools import PoolRecord

log = logging.getLogger("sie.pools")

BUCKET = "SIE_POOLS"
RETRY_PAUSE = 0.5
LOOK_EVERY = 5.0
"""Seconds between two looks at whether the bucket is still there."""

FAULTS = (nats.errors.Error, TimeoutError, OSError, APIError)

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(PoolRecord)


class Conflict(Exception):
    """Somebody else changed the key first."""


class Entry(msgspec.Struct, frozen=True):
    """A record and the revision of the bucket that wrote it."""

    record: PoolRecord
    revision: int


class Bucket:
    """A copy of the bucket, kept up to date by its changes. ``changed`` is called after each.

    A bucket in memory is gone when its server restarts: whoever finds it missing creates it and puts its copy in.
    """

    def __init__(
        self, client: Client, settings: BusSettings, changed: Callable[[], None] = lambda: None, *, keeper: bool = True
    ) -> None:
        """``keeper``: create the bucket where it is missing; others wait until it is there."""
        self._js: JetStreamContext = client.jetstream(timeout=5.0)
        self._settings = settings
        self._changed = changed
        self._keeper = keeper
        self._entries: dict[str, Entry] = {}
        self._revisions: dict[str, int] = {}
        self._store: KeyValue | None = None
        self._again = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()

    def start(self) -> None:
        """Follow the bucket from now on."""
        self._task = asyncio.create_task(self._follow(), name="pools-bucket")

    async def stop(self) -> None:
        await ended(self._task)

    def reconnected(self) -> None:
        """The bus is back: it may have forgotten the bucket, and changes may have been missed."""
        self._again.set()

    def entries(self) -> dict[str, Entry]:
        return self._entries

    async def read(self, key: str) -> Entry | None:
        """The entry as the bucket has it now."""
        try:
            found = await (await self._open()).get(key)
        except KeyNotFoundError:  # deleted or never there
            return None
        assert found.value is not None and found.revision is not None
        entry = Entry(_decoder.decode(found.value), found.revision)
        self._take(key, entry)
        return entry

    async def write(self, key: str, record: PoolRecord, after: Entry | None) -> Entry:
        """Create the key, or replace the entry that it had.

        Raises:
            Conflict: it is not as the caller knew it.
        """
        store = await self._open()
        try:
            if after is None:
                revision = await store.create(key, _encode(record))
            else:
                revision = await store.update(key, _encode(record), after.revision)
        except KeyWrongLastSequenceError as error:
            raise Conflict(key) from error
        entry = Entry(record, revision)
        self._take(key, entry)
        return entry

    async def remove(self, key: str, after: Entry) -> None:
        """Delete the key.

        Raises:
            Conflict: it is not as the caller knew it.
        """
        store = await self._open()
        try:
            await store.delete(key, last=after.revision)
        except (KeyWrongLastSequenceError, BadRequestError) as error:
            raise Conflict(key) from error
        if (known := self._entries.get(key)) is not None and known.revision <= after.revision:
            del self._entries[key]
            self._changed()

    async def _open(self) -> KeyValue:
        if self._store is None:
            self._store = await self._bucket()
        return self._store

    async def _bucket(self) -> KeyValue:
        try:
            return await self._js.key_value(BUCKET)
        except (BucketNotFoundError, NotFoundError):
            if not self._keeper:
                raise
        storage = StorageType.MEMORY if self._settings.memory_only else StorageType.FILE
        config = KeyValueConfig(bucket=BUCKET, history=1, storage=storage, replicas=self._settings.replicas)
        store = await self._js.create_key_value(config)
        # the bus has lost it: what this process still knows goes back in
        for key, entry in sorted(self._entries.items()):
            with contextlib.suppress(KeyWrongLastSequenceError):
                await store.create(key, _encode(entry.record))
        self._entries, self._revisions = {}, {}
        log.info("pools: created the bucket %s", BUCKET)
        return store

    async def _follow(self) -> None:
        while True:
            self._again.clear()
            try:
                self._store = None
                store = await self._open()
                await self._watch(store)
            except FAULTS as error:
                quiet = isinstance(error, BucketNotFoundError | NotFoundError) and not self._keeper
                log.log(logging.DEBUG if quiet else logging.WARNING, "pools: %s", error or type(error).__name__)
                await asyncio.sleep(RETRY_PAUSE)

    async def _watch(self, store: KeyValue) -> None:
        """Take every change until the connection was lost in between or the bucket is gone."""
        # a new bucket counts its revisions from the start
        self._revisions = {}
        watcher = await store.watchall(include_history=False)
        changes = asyncio.create_task(self._apply(watcher))
        again = asyncio.create_task(self._again.wait())
        try:
            while not again.done() and not changes.done():
                await asyncio.wait({again, changes}, timeout=LOOK_EVERY, return_when=asyncio.FIRST_COMPLETED)
                await store.status()
            if changes.done():
                changes.result()
        finally:
            await ended(again, changes)
            with contextlib.suppress(*FAULTS):
                await watcher.stop()

    async def _apply(self, watcher: KeyValue.KeyWatcher) -> None:
        """The first pass shows all there is; what it does not show is gone."""
        seen: set[str] | None = set()
        while True:
            update = await watcher.updates(timeout=None)
            if update is None:
                if seen is not None:
                    for key in set(self._entries) - seen:
                        del self._entries[key]
                    seen = None
                    self.ready.set()
                    self._changed()
                continue
            if seen is not None:
                seen.add(update.key)
            if update.operation is not None:
                self._forget(update.key, update.revision or 0)
                continue
            try:
                record = _decoder.decode(update.value or b"")
            except msgspec.DecodeError as error:
                log.error("pools: the entry %s cannot be read: %s", update.key, error)
                continue
            self._take(update.key, Entry(record, update.revision or 0))

    def _take(self, key: str, entry: Entry) -> None:
        if entry.revision <= self._revisions.get(key, 0):
            return  # older than what is known, such as the echo of a change of ours
        self._revisions[key] = entry.revision
        self._entries[key] = entry
        self._changed()

    def _forget(self, key: str, revision: int) -> None:
        if revision > self._revisions.get(key, 0):
            self._revisions[key] = revision
            if self._entries.pop(key, None) is not None:
                self._changed()

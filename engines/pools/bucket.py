"""The bucket that holds the pools, and the copy of it that a process keeps."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import Header, KeyValueConfig, StorageType
from nats.js.errors import APIError, BucketNotFoundError, KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KV_DEL, KV_OP, KeyValue

from engines.bus.settings import BusSettings
from engines.bus.tasks import ended
from engines.protocol.pools import PoolRecord

log = logging.getLogger("sie.pools")

BUCKET = "SIE_POOLS"
STREAM = f"KV_{BUCKET}"
RETRY_PAUSE = 0.5
LOOK_EVERY = 5.0
"""Seconds between two looks at whether the bucket is still there."""
MARKER_TTL = 600
"""Seconds that the bucket remembers a removal: longer than any watch lags behind without starting anew."""
OLD_MARKER = timedelta(seconds=2 * MARKER_TTL)
"""A marker of this age will not go by itself: its bucket or server knows no time to live."""

FAULTS = (nats.errors.Error, TimeoutError, OSError, APIError)
WRONG_SEQUENCE = {10071, 10164}
NO_MESSAGE_TTL = 10166

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(PoolRecord)


class Conflict(Exception):
    """Somebody else changed the key first, or the bucket is another now: read again."""


class Entry(msgspec.Struct, frozen=True):
    """A record and the revision of the bucket that wrote it; 0 where this bucket has not shown it yet."""

    record: PoolRecord
    revision: int


class Bucket:
    """A copy of the bucket, kept up to date by its changes. ``changed`` is called after each.

    A bucket in memory is gone when its server restarts: whoever finds it missing creates it, and every keeper puts
    back what the new one lacks. Until a watch of the new one has shown all there is, the copy keeps what it had.
    """

    def __init__(
        self, client: Client, settings: BusSettings, changed: Callable[[], None] = lambda: None, *, keeper: bool = True
    ) -> None:
        """``keeper``: create and restore the bucket where it is missing; others wait until it is there."""
        self._js: JetStreamContext = client.jetstream(timeout=5.0)
        self._settings = settings
        self._changed = changed
        self._keeper = keeper
        self._entries: dict[str, Entry] = {}
        self._born: datetime | None = None
        """When the bucket was created that the copy is one of: a new one counts its revisions from the start."""
        self._shown = 0
        """The revision up to which the watch has shown the bucket."""
        self._removed: dict[str, int] = {}
        """Removals of ours that the watch has not shown yet, by their revisions."""
        self._old_markers: dict[str, int] = {}
        self._store: KeyValue | None = None
        self._opening: asyncio.Task[KeyValue] | None = None
        self._again = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()

    def start(self) -> None:
        """Follow the bucket from now on."""
        self._task = asyncio.create_task(self._follow(), name="pools-bucket")

    async def stop(self) -> None:
        await ended(self._task, self._opening)

    def reconnected(self) -> None:
        """The bus is back: it may have forgotten the bucket, and changes may have been missed."""
        self._store = None
        self._again.set()

    def entries(self) -> dict[str, Entry]:
        return self._entries

    async def read(self, key: str) -> Entry | None:
        """The entry as the bucket has it now.

        Raises:
            Conflict: the bucket is gone or another one.
        """
        store, born = await self._open(), self._born
        try:
            entry = await self._stored(store, key)
        except KeyNotFoundError:
            if await self._is_still(born):
                return None
            # nothing is found in a bucket that is gone, or not restored yet
            if self._born == born:
                self.reconnected()
            raise Conflict(key) from None
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
        except (KeyWrongLastSequenceError, KeyNotFoundError) as error:  # not found: a marker that has just gone
            raise Conflict(key) from error
        entry = Entry(record, revision)
        self._take(key, entry)
        return entry

    async def remove(self, key: str, after: Entry) -> None:
        """Delete the key.

        Raises:
            Conflict: it is not as the caller knew it.
        """
        await self._open()
        revision = await self._mark(key, after.revision)
        if revision > self._shown:
            self._removed[key] = revision
        if (known := self._entries.get(key)) is not None and known.revision < revision:
            del self._entries[key]
            self._changed()

    async def tidy(self) -> None:
        """Take away markers that the bucket would keep for ever."""
        while self._old_markers:
            key, revision = self._old_markers.popitem()
            # what has been written since stays
            await self._js.purge_stream(STREAM, subject=_subject(key), seq=revision + 1)

    async def _open(self) -> KeyValue:
        """The bucket, opened and restored once for all who wait for it."""
        if self._store is not None:
            return self._store
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._bucket(), name="pools-open")
        return await asyncio.shield(self._opening)

    async def _bucket(self) -> KeyValue:
        store = await self._found_or_created()
        created, known = await self._look()
        if not known:
            await self._restore(store)
            self._born = created
        self._store = store
        return store

    async def _found_or_created(self) -> KeyValue:
        try:
            return await self._js.key_value(BUCKET)
        except NotFoundError:
            if not self._keeper:
                raise
        storage = StorageType.MEMORY if self._settings.memory_only else StorageType.FILE
        config = KeyValueConfig(bucket=BUCKET, history=1, storage=storage, replicas=self._settings.replicas)
        store = await self._js.create_key_value(config)
        log.info("pools: created the bucket %s", BUCKET)
        return store

    async def _look(self) -> tuple[datetime | None, bool]:
        """When the bucket was created, and whether it is the one that the copy is of, with all that it has shown."""
        shown = self._shown
        info = await self._js.stream_info(STREAM)
        return info.created, info.created == self._born and info.state.last_seq >= shown

    async def _is_still(self, born: datetime | None) -> bool:
        try:
            _, known = await self._look()
        except NotFoundError:
            return False
        return known and self._born == born

    async def _restore(self, store: KeyValue) -> None:
        """What this process still knows goes into a bucket that is new to it; a fault lets the next one start over."""
        self._born = None
        self._shown, self._removed, self._old_markers = 0, {}, {}
        self._entries = {key: Entry(entry.record, 0) for key, entry in self._entries.items()}
        if self._keeper:
            for key, entry in sorted(self._entries.items()):
                await self._put_back(store, key, entry.record)

    async def _put_back(self, store: KeyValue, key: str, record: PoolRecord) -> None:
        """Unless the bucket has a newer one, or knows that it was removed."""
        with contextlib.suppress(KeyWrongLastSequenceError):
            # after 0: only where there is neither a record nor a marker
            self._take(key, Entry(record, await store.update(key, _encode(record), 0)))
            return
        try:
            there = await self._stored(store, key)
        except msgspec.DecodeError:  # the watch will tell
            return
        except KeyNotFoundError as error:
            if error.op is None:  # no marker: the bucket has gone in between
                raise
            self._entries.pop(key, None)
            self._changed()
            return
        if there.record.last_renewed >= record.last_renewed:
            self._take(key, there)
        else:
            with contextlib.suppress(KeyWrongLastSequenceError):  # changed this moment: the watch will show it
                self._take(key, Entry(record, await store.update(key, _encode(record), there.revision)))

    async def _stored(self, store: KeyValue, key: str) -> Entry:
        """What the bucket has.

        Raises:
            KeyNotFoundError: removed, or never there.
        """
        found = await store.get(key)
        assert found.revision is not None
        return Entry(_decoder.decode(found.value or b""), found.revision)

    async def _mark(self, key: str, last: int) -> int:
        """Put a marker of removal over the revision ``last``; the bucket forgets it where it can."""
        headers = {KV_OP: KV_DEL, Header.EXPECTED_LAST_SUBJECT_SEQUENCE: str(last)}
        try:
            try:
                ack = await self._js.publish(_subject(key), headers=dict(headers), msg_ttl=MARKER_TTL)
            except APIError as error:
                if error.err_code != NO_MESSAGE_TTL:
                    raise
                ack = await self._js.publish(_subject(key), headers=headers)
        except APIError as error:
            if error.err_code in WRONG_SEQUENCE:
                raise Conflict(key) from error
            raise
        return int(ack.seq)

    async def _follow(self) -> None:
        while True:
            self._again.clear()
            try:
                self._store = None
                await self._watch(await self._open())
            except FAULTS as error:
                quiet = isinstance(error, BucketNotFoundError | NotFoundError) and not self._keeper
                log.log(logging.DEBUG if quiet else logging.WARNING, "pools: %s", error or type(error).__name__)
                await asyncio.sleep(RETRY_PAUSE)

    async def _watch(self, store: KeyValue) -> None:
        """Take every change until the connection was lost in between or the bucket is gone or another one."""
        born, before = self._born, dict(self._entries)
        watcher = await store.watchall(include_history=False)
        changes = asyncio.create_task(self._apply(watcher, born, before))
        again = asyncio.create_task(self._again.wait())
        try:
            while not again.done() and not changes.done():
                await asyncio.wait({again, changes}, timeout=LOOK_EVERY, return_when=asyncio.FIRST_COMPLETED)
                if not await self._is_still(born):
                    break
            if changes.done():
                changes.result()
        finally:
            await ended(again, changes)
            with contextlib.suppress(*FAULTS):
                await watcher.stop()

    async def _apply(self, watcher: KeyValue.KeyWatcher, born: datetime | None, before: dict[str, Entry]) -> None:
        """The first pass shows all there is; what was known ``before`` and is not shown is gone."""
        seen: set[str] | None = set()
        while True:
            update = await watcher.updates(timeout=None)
            if self._born != born:
                return
            if update is not None:
                if seen is not None:
                    seen.add(update.key)
                self._show(update)
            elif seen is not None:
                for key in set(before) - seen:
                    if self._entries.get(key) is before[key]:
                        del self._entries[key]
                seen = None
                self.ready.set()
                self._changed()

    def _show(self, update: KeyValue.Entry) -> None:
        """Take one change as the bucket tells it; changes come in the order of their revisions."""
        key, revision = update.key, update.revision or 0
        if update.operation is not None:
            self._forget(key, revision)
            if self._keeper and update.created is not None and update.created < datetime.now(UTC) - OLD_MARKER:
                self._old_markers[key] = revision
        elif revision > self._removed.get(key, 0):
            try:
                self._replace(key, Entry(_decoder.decode(update.value or b""), revision))
            except msgspec.DecodeError as error:
                log.error("pools: the entry %s cannot be read: %s", key, error)
        self._shown = max(self._shown, revision)
        if self._removed:
            self._removed = {name: removed for name, removed in self._removed.items() if removed > self._shown}

    def _take(self, key: str, entry: Entry) -> None:
        """Take what a request has read or written, unless the watch has shown as much already."""
        if entry.revision > max(self._shown, self._removed.get(key, 0)):
            self._replace(key, entry)

    def _replace(self, key: str, entry: Entry) -> None:
        known = self._entries.get(key)
        if known is None or known.revision < entry.revision:
            self._entries[key] = entry
            self._changed()

    def _forget(self, key: str, revision: int) -> None:
        known = self._entries.get(key)
        if known is not None and known.revision < revision:
            del self._entries[key]
            self._changed()


def _subject(key: str) -> str:
    return f"$KV.{BUCKET}.{key}"

"""Payloads over the message limit: they go through a bucket, and the message carries their name."""

from __future__ import annotations

import asyncio
import contextlib
import io
import uuid

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ObjectInfo
from nats.js.errors import ObjectNotFoundError
from nats.js.object_store import ObjectStore

from .settings import BusSettings
from .streams import payload_bucket
from .subjects import PAYLOAD_HEADER
from .tasks import ended

SIZE_HEADER = "Sie-Payload-Size"
HEADROOM = 4096
"""Bytes of a message kept for its headers."""
STALL = 10.0
"""Seconds without a further part after which the rest of a payload is not waited for."""


class IncompletePayload(Exception):
    """Only a part of a payload came: the connection was lost, or somebody deleted it meanwhile."""


class PayloadGone(IncompletePayload):
    """It was deleted, and will not come."""


NOT_FETCHED = (IncompletePayload, nats.errors.Error, TimeoutError, OSError)
"""What fetching a payload may raise."""


class Payloads:
    """Stores, fetches and deletes large payloads. The bucket is created by its first use."""

    def __init__(self, client: Client, js: JetStreamContext, settings: BusSettings) -> None:
        self._client = client
        self._js = js
        self._settings = settings
        self._bucket: ObjectStore | None = None
        self._undoing: set[asyncio.Task[None]] = set()

    @property
    def limit(self) -> int:
        """The largest payload, in bytes, that fits a message."""
        return int(self._client.max_payload) - HEADROOM

    async def store(self, data: bytes) -> dict[str, str]:
        """Store ``data``; return the headers that lead to it."""
        name = uuid.uuid4().hex
        try:
            bucket = await self._store()
            storing = asyncio.create_task(bucket.put(name, data))
            try:
                await asyncio.shield(storing)
            except asyncio.CancelledError:
                self._undo(bucket, name, storing)
                raise
        except Exception:
            self._bucket = None  # a bus that was restarted may have lost it: the next use makes it anew
            raise
        return {PAYLOAD_HEADER: name, SIZE_HEADER: str(len(data))}

    async def fetch(self, headers: dict[str, str] | None, data: bytes) -> bytes:
        """The payload of a message: ``data`` itself, or what its headers lead to.

        Raises:
            IncompletePayload: it is not all there; nats-py returns what came as if it were all, or waits for ever.
        """
        name = (headers or {}).get(PAYLOAD_HEADER)
        if name is None:
            return data
        into = io.BytesIO()  # nats-py's own way copies all that came before with each part
        getting = asyncio.create_task((await self._store()).get(name, writeinto=into))
        try:
            before = -1
            while not getting.done() and before < into.tell():
                before = into.tell()
                await asyncio.wait({getting}, timeout=STALL)
        finally:
            await ended(getting)
        try:
            size = "?" if getting.cancelled() else getting.result().info.size
        except ObjectNotFoundError as error:
            raise PayloadGone("it was deleted") from error
        if into.tell() != size:
            raise IncompletePayload(f"{into.tell()} of {size} bytes")
        return into.getvalue()

    async def drop(self, headers: dict[str, str] | None) -> None:
        """Delete what the headers lead to, if anything and if nobody has yet."""
        name = (headers or {}).get(PAYLOAD_HEADER)
        if name is not None:
            with contextlib.suppress(ObjectNotFoundError):
                await (await self._store()).delete(name)

    def _undo(self, bucket: ObjectStore, name: str, storing: asyncio.Task[ObjectInfo]) -> None:
        """Delete what nobody wants any more once it is stored: only then is it known what there is to delete."""

        async def undo() -> None:
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                await storing
                await bucket.delete(name)

        undoing = asyncio.create_task(undo())
        self._undoing.add(undoing)
        undoing.add_done_callback(self._undoing.discard)

    async def _store(self) -> ObjectStore:
        if self._bucket is None:
            self._bucket = await payload_bucket(self._js, self._settings)
        return self._bucket


def size_of(headers: dict[str, str]) -> int | None:
    """How large the payload is that the headers lead to, as far as they say."""
    size = headers.get(SIZE_HEADER, "")
    return int(size) if size.isdecimal() else None

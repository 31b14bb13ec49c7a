"""Payloads over the message limit: they go through a bucket, and the message carries their name."""

from __future__ import annotations

import asyncio
import io
import uuid

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.object_store import ObjectStore

from .settings import BusSettings
from .streams import payload_bucket
from .subjects import PAYLOAD_HEADER
from .tasks import ended

HEADROOM = 4096
"""Bytes of a message kept for its headers."""
STALL = 10.0
"""Seconds without a further part after which the rest of a payload is not waited for."""


class IncompletePayload(Exception):
    """Only a part of a payload came: the connection was lost, or somebody deleted it meanwhile."""


class Payloads:
    """Stores, fetches and deletes large payloads. The bucket is created by its first use."""

    def __init__(self, client: Client, js: JetStreamContext, settings: BusSettings) -> None:
        self._client = client
        self._js = js
        self._settings = settings
        self._bucket: ObjectStore | None = None

    @property
    def limit(self) -> int:
        """The largest payload, in bytes, that fits a message."""
        return int(self._client.max_payload) - HEADROOM

    async def store(self, data: bytes) -> dict[str, str]:
        """Store ``data``; return the headers that lead to it."""
        name = uuid.uuid4().hex
        try:
            await (await self._store()).put(name, data)
        except Exception:
            self._bucket = None  # a bus that was restarted may have lost it: the next use makes it anew
            raise
        return {PAYLOAD_HEADER: name}

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
        size = "?" if getting.cancelled() else getting.result().info.size
        if into.tell() != size:
            raise IncompletePayload(f"{into.tell()} of {size} bytes")
        return into.getvalue()

    async def drop(self, headers: dict[str, str] | None) -> None:
        """Delete what the headers lead to, if anything."""
        name = (headers or {}).get(PAYLOAD_HEADER)
        if name is not None:
            await (await self._store()).delete(name)

    async def _store(self) -> ObjectStore:
        if self._bucket is None:
            self._bucket = await payload_bucket(self._js, self._settings)
        return self._bucket

"""Payloads over the message limit: they go through a bucket, and the message carries their name."""

from __future__ import annotations

import uuid

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.object_store import ObjectStore

from .settings import BusSettings
from .streams import payload_bucket
from .subjects import PAYLOAD_HEADER

HEADROOM = 4096
"""Bytes of a message kept for its headers."""


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
        await (await self._store()).put(name, data)
        return {PAYLOAD_HEADER: name}

    async def fetch(self, headers: dict[str, str] | None, data: bytes) -> bytes:
        """The payload of a message: ``data`` itself, or what its headers lead to.

        Raises:
            IncompletePayload: it is not all there; nats-py returns what came as if it were all.
        """
        name = (headers or {}).get(PAYLOAD_HEADER)
        if name is None:
            return data
        found: ObjectStore.ObjectResult = await (await self._store()).get(name)
        got = found.data or b""
        if len(got) != found.info.size:
            raise IncompletePayload(f"{len(got)} of {found.info.size} bytes")
        return got

    async def drop(self, headers: dict[str, str] | None) -> None:
        """Delete what the headers lead to, if anything."""
        name = (headers or {}).get(PAYLOAD_HEADER)
        if name is not None:
            await (await self._store()).delete(name)

    async def _store(self) -> ObjectStore:
        if self._bucket is None:
            self._bucket = await payload_bucket(self._js, self._settings)
        return self._bucket

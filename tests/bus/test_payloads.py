"""Payloads that go through a bucket of the bus."""

from __future__ import annotations

import asyncio
import contextlib
import io

import nats.errors
import pytest
from nats.js import errors

from engines.bus import payloads as module
from engines.bus.connection import connect
from engines.bus.payloads import SIZE_HEADER, IncompletePayload, Payloads, size_of
from engines.bus.subjects import PAYLOAD_HEADER, PAYLOADS


class Bucket:
    """A part comes, and nothing after it."""

    async def get(self, _name: str, writeinto: io.BytesIO) -> None:
        writeinto.write(b"part")
        await asyncio.Event().wait()


async def test_a_payload_whose_rest_does_not_come_is_incomplete(monkeypatch):
    monkeypatch.setattr(module, "STALL", 0.05)
    payloads = Payloads(None, None, None)
    payloads._bucket = Bucket()
    with pytest.raises(IncompletePayload, match="4 of"):
        await payloads.fetch({PAYLOAD_HEADER: "name"}, b"")


async def test_a_bucket_that_the_bus_has_lost_is_made_anew(bus):
    client = await connect(bus, "test")
    js = client.jetstream(timeout=5.0)
    payloads = Payloads(client, js, bus)
    data = bytes(range(256)) * 4096
    assert await payloads.fetch(await payloads.store(data), b"") == data
    await js.delete_object_store(PAYLOADS)
    with contextlib.suppress(errors.Error, nats.errors.Error):
        await payloads.store(data)
    assert await payloads.fetch(await payloads.store(data), b"") == data
    await client.close()


async def test_a_payload_that_was_deleted_is_incomplete_and_may_be_deleted_again(bus):
    client = await connect(bus, "test")
    payloads = Payloads(client, client.jetstream(timeout=5.0), bus)
    headers = await payloads.store(b"data")
    assert size_of(headers) == 4
    await payloads.drop(headers)
    await payloads.drop(headers)
    with pytest.raises(IncompletePayload, match="deleted"):
        await payloads.fetch(headers, b"")
    await client.close()


@pytest.mark.parametrize("headers", [{}, {PAYLOAD_HEADER: "name"}, {SIZE_HEADER: "-1"}, {SIZE_HEADER: "large"}])
def test_a_size_that_is_not_told_is_unknown(headers):
    assert size_of(headers) is None

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from nats.js import JetStreamContext

from engines.bus.connection import connect
from engines.bus.server import EmbeddedServer
from engines.bus.settings import BusSettings
from engines.protocol.pools import PoolSpec
from tests.bus.conftest import cluster_of

__all__ = ["cluster_of"]


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    made = EmbeddedServer()
    made.settings = await made.start(BusSettings())  # type: ignore[attr-defined]  # for ``settings`` below
    yield made
    await made.stop()


@pytest.fixture
async def js(server: EmbeddedServer) -> AsyncIterator[JetStreamContext]:
    """The server as an operator sees it."""
    client = await connect(settings(server), "operator")
    yield client.jetstream(timeout=5.0)
    await client.close()


def settings(server: EmbeddedServer) -> BusSettings:
    return server.settings  # type: ignore[attr-defined,no-any-return]


def spec(name: str = "mine", **fields: object) -> PoolSpec:
    return msgspec.convert({"name": name, "gpus": {"l4": 1}, **fields}, PoolSpec)

"""The retrieval surface behind its real routes, with a scripted dispatcher in place of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import msgspec
import pytest
from litestar import Litestar

from generated.sie import operations, routes
from handlers.http.server import Server
from handlers.retrieval import (
    EmbeddingsSurface,
    EncodeSurface,
    ExtractSurface,
    RerankSurface,
    ScoreSurface,
    TranscriptionSurface,
)
from handlers.services import Services
from handlers.settings import Settings

from . import fakes


class Inference(EmbeddingsSurface, RerankSurface, EncodeSurface, ScoreSurface, ExtractSurface, TranscriptionSurface):
    """The surfaces of this package."""


class Client(httpx.AsyncClient):
    """Posts to the application; ``dispatcher`` has seen the work and says what comes of it."""

    dispatcher: fakes.Dispatcher


@cache
def application() -> tuple[Litestar, fakes.Dispatcher]:
    """One application for all tests, and the dispatcher behind it."""
    dispatcher = fakes.Dispatcher()
    settings = Settings()
    services = Services(fakes.Catalog(), dispatcher, fakes.Cluster(), settings)
    server: Any = Server(
        operations.ALL,
        msgspec.json.decode(Path(operations.DOCUMENT).read_bytes()),
        settings,
        version="0.6.26",
        wrapped=frozenset({"proxy_openai_embeddings", "proxy_openai_transcription"}),
    )
    tags = dict.fromkeys(("health", "models", "pools", "config", "docs", "observability"))
    handlers: Any = SimpleNamespace(inference=Inference(services), **tags)
    return Litestar(route_handlers=routes.build(handlers, server), openapi_config=None), dispatcher


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of an application whose dispatcher answers honestly until a test scripts it."""
    app, dispatcher = application()
    vars(dispatcher).clear()
    dispatcher.__init__()  # type: ignore[misc]
    transport = httpx.ASGITransport(app=cast(Any, app))
    async with Client(transport=transport, base_url="http://oasgate") as client:
        client.dispatcher = dispatcher
        yield client

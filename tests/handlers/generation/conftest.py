"""The generation surface behind its real routes, with a scripted dispatcher in place of the cluster."""

from __future__ import annotations

import json
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
from handlers.generation import ChatSurface, CompletionsSurface, GenerateSurface, ResponsesSurface
from handlers.http.server import Server
from handlers.services import Services
from handlers.settings import Settings

from . import fakes


class Inference(ChatSurface, CompletionsSurface, ResponsesSurface, GenerateSurface):
    """The surfaces of this package."""


class Client(httpx.AsyncClient):
    """Posts to the application; ``dispatcher`` has seen the work and says what comes of it."""

    dispatcher: fakes.Dispatcher
    cluster: fakes.Cluster
    inference: Inference

    @property
    def work(self) -> Any:
        """The only work item that was submitted."""
        (work,) = self.dispatcher.works
        return work

    async def chat(self, **body: Any) -> httpx.Response:
        """A chat request with ``body`` over the least one."""
        least = {"model": "org/chat", "messages": [{"role": "user", "content": "hi"}]}
        return await self.post("/v1/chat/completions", json={**least, **body})

    async def chunks(self, path: str = "/v1/chat/completions", **body: Any) -> list[Any]:
        """The payloads of a stream; the last is ``[DONE]``."""
        least: dict[str, Any] = {
            "/v1/chat/completions": {"model": "org/chat", "messages": [{"role": "user", "content": "hi"}]},
            "/v1/completions": {"model": "org/chat", "prompt": "hi"},
        }.get(path, {"prompt": "hi", "max_new_tokens": 8})
        response = await self.post(path, json={**least, "stream": True, **body})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return events(response.content)


def events(body: bytes) -> list[Any]:
    """The payloads of whole server-sent events; nothing else may be between them."""
    assert body.endswith(b"\n\n")
    payloads: list[Any] = []
    for event in body.decode("utf-8", errors="strict").removesuffix("\n\n").split("\n\n"):
        assert event.startswith("data: "), event
        assert "\n" not in event
        text = event.removeprefix("data: ")
        payloads.append(text if text == "[DONE]" else json.loads(text))
    return payloads


SETTINGS = Settings()


@cache
def _application() -> tuple[Litestar, Inference]:
    services = Services(fakes.Catalog(), fakes.Dispatcher(), fakes.Cluster(), SETTINGS)
    server: Any = Server(
        operations.ALL, msgspec.json.decode(Path(operations.DOCUMENT).read_bytes()), SETTINGS, version="0.6.26"
    )
    inference = Inference(services)
    tags = dict.fromkeys(("health", "models", "pools", "config", "docs", "observability"))
    handlers: Any = SimpleNamespace(inference=inference, **tags)
    return Litestar(route_handlers=routes.build(handlers, server), openapi_config=None), inference


def configure(client: Client, settings: Settings) -> None:
    """Other settings, for the rest of the test."""
    client.inference.services = Services(fakes.Catalog(), client.dispatcher, client.cluster, settings)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of an application whose dispatcher says hello until a test scripts it."""
    app, inference = _application()
    transport = httpx.ASGITransport(app=cast(Any, app))
    async with Client(transport=transport, base_url="http://oasgate") as client:
        client.dispatcher, client.cluster, client.inference = fakes.Dispatcher(), fakes.Cluster(), inference
        configure(client, SETTINGS)
        yield client

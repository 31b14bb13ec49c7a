"""Over a real socket: uvicorn, clients that leave, large bodies, refused WebSockets, a server that is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from litestar import Litestar, Request, post
from litestar.types import ASGIApp
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import app
from handlers.http.access import AccessLog, Line
from tests.http.fakes import Reply, operation, server, services


class Uvicorn:
    """One application on a free port, in a thread of its own."""

    def __init__(self, application: Litestar) -> None:
        config = uvicorn.Config(application, host="127.0.0.1", port=0, log_level="error", lifespan="on")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Uvicorn:
        self._thread.start()
        wait(lambda: self._server.started)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()


def wait(done: Callable[[], bool], limit: float = 20.0) -> None:
    end = time.monotonic() + limit
    while not done():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


class Endless:
    """A handler that answers in one of two ways, neither of which ends; it notes how its requests end."""

    def __init__(self) -> None:
        self.started = 0
        self.cancelled = 0
        self.closed = 0

    async def blocking(self, context: Any, body: Any) -> Reply:
        self.started += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Reply("")

    async def streaming(self, context: Any, body: Any) -> AsyncIterator[bytes]:
        self.started += 1
        return self._frames()

    async def _frames(self) -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\n\n"
            await asyncio.Event().wait()
        finally:
            self.closed += 1


@pytest.fixture
def lines() -> list[Line]:
    return []


@pytest.fixture
def endless() -> Endless:
    return Endless()


@pytest.fixture
def things(endless: Endless, lines: list[Line]) -> Iterator[Uvicorn]:
    """``POST /blocking`` and ``POST /streaming``."""
    rows = [operation(id="blocking", path="/blocking"), operation(id="streaming", path="/streaming")]
    serve = server(*rows, lines=lines)

    @post("/blocking")
    async def blocking(request: Request[Any, Any, Any]) -> ASGIApp:
        return await serve(rows[0], request, endless.blocking)

    @post("/streaming")
    async def streaming(request: Request[Any, Any, Any]) -> ASGIApp:
        return await serve(rows[1], request, endless.streaming)

    with Uvicorn(Litestar([blocking, streaming], openapi_config=None)) as running:
        yield running


@pytest.fixture
def gateway() -> Iterator[Uvicorn]:
    with Uvicorn(app.create_app(services(), AccessLog(None))) as running:
        yield running


def test_client_that_leaves_a_blocking_request_cancels_it(things: Uvicorn, endless: Endless, lines: list[Line]) -> None:
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(f"{things.url}/blocking", json={"model": "m"}, timeout=httpx.Timeout(5.0, read=0.3))
    wait(lambda: endless.cancelled == 1)
    wait(lambda: bool(lines))
    assert (lines[0].status, lines[0].left) == (499, True)


def test_client_that_leaves_a_stream_closes_its_source(things: Uvicorn, endless: Endless, lines: list[Line]) -> None:
    with httpx.stream("POST", f"{things.url}/streaming", json={"model": "m"}) as response:
        assert response.headers["content-type"] == "text/event-stream"
        assert next(response.iter_raw()) == b"data: 1\n\n"
    wait(lambda: endless.closed == 1)
    wait(lambda: bool(lines))
    assert (lines[0].status, lines[0].left) == (200, True)


def test_connection_is_used_again_after_an_answer(gateway: Uvicorn) -> None:
    with httpx.Client(base_url=gateway.url) as client:
        ids = {client.get("/v1/models").headers["x-request-id"] for _ in range(5)}
        assert len(ids) == 5
        assert client.post("/v1/embeddings", content=b"[]").status_code == 400
        assert client.get("/healthz").text == "ok"


def test_oversized_body_is_answered_even_while_it_is_sent(gateway: Uvicorn) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(17):
            yield b" " * (1 << 20)

    headers = {"content-type": "application/json"}
    for content in (b" " * (17 << 20), chunks()):
        response = httpx.post(f"{gateway.url}/v1/chat/completions", content=content, headers=headers, timeout=30)
        assert response.status_code == 413
        assert response.json()["error"]["type"] == "invalid_request_error"


def test_probe_is_answered_while_a_large_body_is_parsed(gateway: Uvicorn) -> None:
    body = json.dumps({"prompt": "naïve \n" * 1_600_000}).encode()
    assert len(body) > 20_000_000
    answers: list[int] = []
    large = threading.Thread(
        target=lambda: answers.append(
            httpx.post(f"{gateway.url}/v1/generate/org/chat", content=body, timeout=60).status_code
        )
    )
    large.start()
    probes = 0
    with httpx.Client(base_url=gateway.url) as client:
        while large.is_alive():
            assert client.get("/healthz").text == "ok"
            probes += 1
    assert probes > 0
    assert answers[0] in {400, 503}, "the fake cluster has no worker"


def test_websocket_without_token_gets_a_plain_401() -> None:
    application = app.create_app(services(auth_mode="token", auth_tokens=("t",)), AccessLog(None))
    with Uvicorn(application) as running, pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{running.port}/ws/cluster-status")
    response = refused.value.response
    assert response.status_code == 401
    assert json.loads(response.body or b"")["detail"]["code"] == "UNAUTHORIZED"
    assert response.headers["x-request-id"]


def test_slash_in_a_model_may_be_encoded_and_double_encoding_is_not_undone(gateway: Uvicorn) -> None:
    for path, status in (("org/chat", 200), ("org%2Fchat", 200), ("org%252Fchat", 404)):
        response = httpx.get(f"{gateway.url}/v1/models/{path}", follow_redirects=False)
        assert response.status_code == status

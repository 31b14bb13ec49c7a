"""``/ws/cluster-status``: what a frame holds, when frames come, and what becomes of slow and of many watchers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import msgspec
import pytest
from litestar.exceptions import WebSocketDisconnect
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

import app
from engines.protocol.cluster import ModelStatus
from generated.sie import models
from handlers import observability
from handlers.http.access import AccessLog
from handlers.observability import Broadcast, ObservabilitySurface, frame
from tests.http.test_socket import Uvicorn
from tests.pools.fakes import World, worker

PATH = "/ws/cluster-status"


def world(**settings: Any) -> World:
    loaded = [ModelStatus(name="org/chat", state="loaded")]
    return World(worker("w1", models=loaded, queue_depth=3, requests=7), worker("w2", healthy=False), **settings)


class Socket:
    """A watcher that takes ``takes`` frames and then no more; ``gone`` lets it leave."""

    def __init__(self, takes: int = 1000) -> None:
        self.takes = takes
        self.frames: list[str] = []
        self.closed: int | None = None
        self.gone = asyncio.Event()

    async def send_text(self, text: str) -> None:
        if len(self.frames) >= self.takes:
            await asyncio.Event().wait()
        self.frames.append(text)

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "websocket.disconnect"}

    async def close(self, code: int) -> None:
        self.closed = code


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0.005)


def test_a_frame_has_the_elements_of_health() -> None:
    services = world().services
    state = json.loads(frame(services))
    assert {"timestamp", "cluster", "workers", "models", "pending_generation"} <= set(state)
    with world().client() as http:
        health = http.get("/health").json()
    assert all(state[key] == health[key] for key in ("cluster", "workers", "models", "pending_generation"))
    msgspec.convert(state["workers"], list[models.WorkerInfo])
    msgspec.convert(state["pools"], list[models.Pool])
    assert isinstance(state["timestamp"], float)


def test_the_first_frame_comes_at_once_and_the_next_after_a_second() -> None:
    with world().client() as http, http.websocket_connect(PATH) as socket:
        first, second, third = (json.loads(socket.receive_text()) for _ in range(3))
    assert third["timestamp"] - first["timestamp"] > second["timestamp"] - first["timestamp"] > 0.5
    assert first["cluster"]["worker_count"] == 1


def test_what_a_watcher_says_is_ignored() -> None:
    with world().client() as http, http.websocket_connect(PATH) as socket:
        socket.receive_text()
        for text in ("hello", "{}", "x" * 10_000):
            socket.send_text(text)
        assert json.loads(socket.receive_text())["timestamp"]


async def test_all_watchers_share_one_encoded_frame_and_the_work_ends_with_the_last() -> None:
    surface = ObservabilitySurface(world().services, every=0.4)
    sockets = [Socket() for _ in range(200)]
    tasks = [asyncio.create_task(surface.ws_cluster_status(None, socket)) for socket in sockets]  # type: ignore[arg-type]
    await until(lambda: all(len(socket.frames) >= 3 for socket in sockets))
    made = {id(text) for socket in sockets for text in socket.frames}
    assert len(made) <= 1 + max(len(socket.frames) for socket in sockets), "each was encoded once, for all"
    for socket in sockets:
        socket.gone.set()
    await asyncio.gather(*tasks)
    assert surface._broadcast._timer is None, "nobody watches: no frame is made"


async def test_watchers_are_sent_a_frame_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observability, "GAP", 0.02)
    surface = ObservabilitySurface(world().services, every=0.3)
    sockets = [Socket() for _ in range(5 * observability.TOGETHER)]
    tasks = [asyncio.create_task(surface.ws_cluster_status(None, socket)) for socket in sockets]  # type: ignore[arg-type]
    await until(lambda: all(socket.frames for socket in sockets))
    # what is counted between two turns of the loop is what was sent in one
    steps, before = [], sum(len(socket.frames) for socket in sockets)
    while len(steps) < 5:
        await asyncio.sleep(0)
        now = sum(len(socket.frames) for socket in sockets)
        if now > before:
            steps.append(now - before)
        before = now
    assert max(steps) <= observability.TOGETHER
    for socket in sockets:
        socket.gone.set()
    await asyncio.gather(*tasks)


async def test_a_slow_watcher_is_dropped_and_nobody_waits_for_it() -> None:
    surface = ObservabilitySurface(world().services, every=0.02, slow=0.3)
    slow, fast = Socket(takes=2), Socket()
    tasks = [asyncio.create_task(surface.ws_cluster_status(None, socket)) for socket in (slow, fast)]  # type: ignore[arg-type]
    await tasks[0]
    assert (len(slow.frames), slow.closed) == (2, 1013)
    assert len(fast.frames) > 4
    fast.gone.set()
    await tasks[1]
    assert fast.closed is None


async def test_a_watcher_that_leaves_while_a_frame_is_sent_is_no_fault() -> None:
    class Leaving(Socket):
        async def send_text(self, text: str) -> None:
            raise WebSocketDisconnect(code=1001, detail="")

    surface = ObservabilitySurface(world().services)
    await surface.ws_cluster_status(None, Leaving())  # type: ignore[arg-type]


async def test_the_cadence_does_not_drift_and_a_late_watcher_gets_the_frame_that_is_there() -> None:
    broadcast = Broadcast(world().services, every=5.0)
    first = broadcast.join()
    assert broadcast.join() is first
    broadcast.leave()
    broadcast.leave()


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("x", 401), ("boss", 401)])
async def test_the_upgrade_is_refused_by_plain_http(token: str | None, status: int) -> None:
    made = world(auth_mode="token", auth_tokens=("t",), admin_token="boss")
    with Uvicorn(app.create_app(made.services, AccessLog(None))) as running:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"ws://127.0.0.1:{running.port}{PATH}", additional_headers=headers):
                pass
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body or b"")["detail"]["code"] == "UNAUTHORIZED"
        async with connect(
            f"ws://127.0.0.1:{running.port}{PATH}", additional_headers={"authorization": "Bearer t"}
        ) as socket:
            assert json.loads(await socket.recv())["timestamp"]


async def test_auth_without_tokens_is_500_and_a_plain_get_426() -> None:
    made = world(auth_mode="token")
    with Uvicorn(app.create_app(made.services, AccessLog(None))) as running:
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{running.url}{PATH}")).status_code == 500
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"ws://127.0.0.1:{running.port}{PATH}"):
                pass
        assert refused.value.response.status_code == 500
    with Uvicorn(app.create_app(world().services, AccessLog(None))) as running:
        async with httpx.AsyncClient() as http:
            response = await http.get(f"{running.url}{PATH}")
        assert (response.status_code, response.headers["upgrade"]) == (426, "websocket")


async def test_many_watchers_on_a_real_server_all_get_frames_while_requests_are_answered() -> None:
    with Uvicorn(app.create_app(world().services, AccessLog(None))) as running:
        async with asyncio.timeout(60):
            sockets = await asyncio.gather(*(connect(f"ws://127.0.0.1:{running.port}{PATH}") for _ in range(100)))
            for _ in range(2):
                frames = await asyncio.gather(*(socket.recv() for socket in sockets))
                assert all(json.loads(text)["cluster"]["worker_count"] == 1 for text in frames)
            async with httpx.AsyncClient(base_url=running.url) as http:
                assert all([(await http.get("/healthz")).text == "ok" for _ in range(20)])
            await asyncio.gather(*(socket.close() for socket in sockets))

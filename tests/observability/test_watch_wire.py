"""``/ws/cluster-status`` over real sockets: who may watch and for how long, clients that misbehave, what is logged."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import logging
import os
import socket as sockets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

import app
from handlers.http import sockets as open_sockets
from handlers.http.access import AccessLog, Line
from handlers.observability import ObservabilitySurface
from tests.http.test_socket import Uvicorn, wait
from tests.pools.fakes import World, worker

PATH = "/ws/cluster-status"
TOKEN = "sesame-open-4711"
GUARDED = {"auth_mode": "token", "auth_tokens": (TOKEN,), "admin_token": "boss-of-it-all"}


class Gather(AccessLog):
    """An access log that keeps its lines."""

    enabled = True

    def __init__(self) -> None:
        super().__init__(None)
        self.lines: list[Line] = []

    def __call__(self, line: Line) -> None:
        self.lines.append(line)


@contextlib.contextmanager
def serving(log: AccessLog | None = None, workers: int = 1, **settings: Any) -> Iterator[Uvicorn]:
    world = World(*(worker(f"w{number}") for number in range(workers)), **settings)
    with Uvicorn(app.create_app(world.services, log or AccessLog(None))) as running:
        yield running


@contextlib.asynccontextmanager
async def watching(running: Uvicorn, token: str | None = None, **options: Any) -> AsyncIterator[ClientConnection]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with connect(f"ws://127.0.0.1:{running.port}{PATH}", additional_headers=headers, **options) as opened:
        yield opened


def offer(token: str) -> list[Any]:
    """The subprotocols of a page that has a token."""
    return ["sie.status", f"sie.bearer.{base64.urlsafe_b64encode(token.encode()).decode().rstrip('=')}"]


async def refusal(running: Uvicorn, token: str | None = None, **options: Any) -> tuple[int, str]:
    """Status and code of a refused upgrade."""
    with pytest.raises(InvalidStatus) as refused:
        async with watching(running, token, **options):
            pass
    return refused.value.response.status_code, json.loads(refused.value.response.body or b"")["detail"]["code"]


async def frame(opened: ClientConnection) -> Any:
    return json.loads(await asyncio.wait_for(opened.recv(), 20))


async def end(opened: ClientConnection) -> tuple[int, str]:
    """Read until the server closes; its code and reason."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            await frame(opened)
    return opened.close_code or 0, opened.close_reason or ""


async def test_each_way_to_bring_a_token_opens_the_stream() -> None:
    with serving(**GUARDED) as running:
        async with watching(running, TOKEN) as opened:
            assert (await frame(opened))["timestamp"]
            assert opened.subprotocol is None
        async with watching(running, subprotocols=offer(TOKEN)) as opened:
            assert (await frame(opened))["timestamp"]
            assert opened.subprotocol == "sie.status", "the token is not repeated"
            assert TOKEN not in str(opened.response)
        # a header that is there is the one that counts
        assert await refusal(running, "wrong", subprotocols=offer(TOKEN)) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize(
    "offered",
    [
        offer("wrong"),
        offer("boss-of-it-all"),
        ["sie.status"],
        ["sie.bearer."],
        ["sie.bearer.a"],
        ["sie.bearer.%%%"],
        [f"sie.bearer.{TOKEN}"],
        [TOKEN],
    ],
    ids=str,
)
async def test_what_is_no_token_in_a_subprotocol_opens_nothing(offered: list[Any]) -> None:
    with serving(**GUARDED) as running:
        assert await refusal(running, subprotocols=offered) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({}, 101),
        (GUARDED, 401),
        (GUARDED | {"auth_exempt_operational": True}, 101),
        ({"auth_mode": "token"}, 500),
        ({"auth_mode": "token", "auth_exempt_operational": True}, 101),
    ],
    ids=["none", "token", "exempt", "no tokens", "no tokens, exempt"],
)
async def test_a_watcher_without_a_token(settings: dict[str, Any], status: int) -> None:
    with serving(**settings) as running:
        if status == 101:
            async with watching(running) as opened:
                assert (await frame(opened))["timestamp"]
        else:
            code = "UNAUTHORIZED" if status == 401 else "GATEWAY_AUTH_MISCONFIGURED"
            assert await refusal(running) == (status, code)


@pytest.mark.parametrize(
    ("settings", "origin", "opens"),
    [
        ({}, "http://evil.example", False),
        ({}, "null", False),
        ({}, "http://127.0.0.1:{port}", True),
        ({"cors_origins": ("http://good.example",)}, "http://good.example", True),
        ({"cors_origins": ("http://good.example",)}, "http://evil.example", False),
        ({"cors_origins": ("*",)}, "http://evil.example", True),
        (GUARDED | {"auth_exempt_operational": True}, "http://evil.example", False),
        (GUARDED, "http://evil.example", True),  # it has the token
    ],
)
async def test_a_page_of_another_site_watches_only_where_it_may(
    settings: dict[str, Any], origin: str, opens: bool
) -> None:
    with serving(**settings) as running:
        from_page: Any = origin.format(port=running.port)
        token = TOKEN if settings == GUARDED else None
        if opens:
            async with watching(running, token, origin=from_page) as opened:
                assert (await frame(opened))["timestamp"]
        else:
            assert await refusal(running, token, origin=from_page) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("exempt", [False, True])
async def test_frames_that_need_no_token_hold_no_pools_that_need_one(exempt: bool) -> None:
    with serving(**GUARDED, auth_exempt_operational=exempt) as running:
        async with watching(running, None if exempt else TOKEN) as opened:
            assert ("pools" in await frame(opened)) is not exempt


async def test_a_token_that_is_rotated_out_closes_its_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handlers.http.tokens.LOOK_EVERY", 0.0)
    monkeypatch.setattr(open_sockets, "LOOK_EVERY", 0.05)
    path = tmp_path / "tokens"
    path.write_text("old\nboth\n")
    with serving(auth_mode="token", auth_tokens_file=str(path)) as running:
        async with watching(running, "old") as old, watching(running, "both") as both:
            await frame(old)
            await frame(both)
            fresh = tmp_path / "fresh"
            fresh.write_text("both\nnew\n")
            os.replace(fresh, path)
            assert await end(old) == (1008, "the token is no longer valid")
            assert await refusal(running, "old") == (401, "UNAUTHORIZED")
            async with watching(running, "new") as new:
                await frame(new)
            for _ in range(2):
                await frame(both)


async def test_watching_is_in_the_access_log_and_its_token_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    log = Gather()
    # uvicorn tells the headers of a handshake at this level
    caplog.set_level(logging.INFO)
    with serving(log, **GUARDED) as running:
        async with watching(running, TOKEN) as opened:
            await frame(opened)
        async with watching(running, subprotocols=offer(TOKEN)) as opened:
            await frame(opened)
        await refusal(running, "wrong-guess")
        wait(lambda: len(log.lines) == 3)
    assert sorted((line.method, line.route, line.status) for line in log.lines) == [
        ("WEBSOCKET", PATH, 101),
        ("WEBSOCKET", PATH, 101),
        ("WEBSOCKET", PATH, 401),
    ]
    assert len({line.request_id for line in log.lines}) == 3
    assert not [record for record in caplog.records if record.name == "sie.audit"], "watching changes nothing"
    for secret in (TOKEN, "wrong-guess", *offer(TOKEN)[1:]):
        assert secret not in caplog.text


@pytest.mark.parametrize(
    "rubbish",
    [b"\x00\xff" * 500, "{", "x" * 100_000, b"", ""],
    ids=["bytes", "broken JSON", "long", "no bytes", "no text"],
)
async def test_messages_of_a_watcher_change_nothing(rubbish: Any) -> None:
    with serving() as running:
        async with watching(running) as opened:
            first = await frame(opened)
            for _ in range(50):
                await opened.send(rubbish)
            assert (await frame(opened))["timestamp"] > first["timestamp"]


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\x83\x80\x00\x00\x00\x00", 1002),  # an opcode that there is not
        (b"\x81\x05hello", 1002),  # unmasked
        (b"\x81\x82\x00\x00\x00\x00\xff\xfe", 1007),  # no UTF-8
        (b"\x81\xff\x00\x00\x00\x00\x7f\xff\xff\xff\x00\x00\x00\x00", 1009),  # two gigabytes announced
        (b"GET / HTTP/1.1\r\n\r\n", 1002),
    ],
    ids=["opcode", "unmasked", "no UTF-8", "announced size", "HTTP"],
)
async def test_a_broken_frame_closes_its_own_socket_alone(raw: bytes, code: int) -> None:
    with serving() as running:
        async with watching(running) as good, watching(running, compression=None) as bad:
            await frame(bad)
            bad.transport.write(raw)
            assert (await end(bad))[0] == code
            for _ in range(2):
                await frame(good)
            async with httpx.AsyncClient() as http:
                assert (await http.get(f"{running.url}/healthz")).text == "ok"


async def test_a_watcher_that_reads_nothing_is_dropped_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = functools.partial(ObservabilitySurface, every=0.02, slow=0.5)
    monkeypatch.setattr(app, "ObservabilitySurface", quick)
    log = Gather()
    with serving(log, workers=800) as running, sockets.create_connection(("127.0.0.1", running.port)) as deaf:
        deaf.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = (
            f"GET {PATH} HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n"
        )
        deaf.sendall(upgrade.encode())
        async with watching(running, max_size=None) as good:
            last = 0.0
            async with asyncio.timeout(60):
                while not log.lines:
                    shown = await frame(good)
                    assert shown["timestamp"] > last
                    last = shown["timestamp"]
            assert [(line.method, line.status) for line in log.lines] == [("WEBSOCKET", 101)], "the deaf one"
            await frame(good)

"""What the document marks as sensitive, and what is refused, is in no log and in no message on the bus."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from engines.bus.connection import connect
from engines.bus.server import EmbeddedServer
from engines.bus.settings import BusSettings
from tests.live import ROOT, Server

from .conftest import MODEL

PLAIN = "a-prompt-that-travels"
WORKER_START_S = 60.0
LEAST: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": PLAIN}]},
    "/v1/completions": {"model": MODEL, "prompt": PLAIN},
    "/v1/responses": {"model": MODEL, "input": PLAIN},
    f"/v1/generate/{MODEL.replace('/', '__')}": {"prompt": PLAIN, "max_new_tokens": 8},
}
CHAT, COMPLETIONS, RESPONSES, GENERATE = LEAST
ACCEPTED = {CHAT: {"user", "safety_identifier"}, GENERATE: {"safety_identifier"}}
FIELDS = ("user", "safety_identifier", "metadata")
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("answered", {}),
    ("streamed", {"stream": True}),
    ("a fault in another field", {"temperature": -1}),
    ("an unknown field", {"unheard_of": 1}),
    ("a failure of the engine", {"prompt": "crash"}),
    ("a refusal of the engine", {"prompt": "refuse"}),
    ("a stream that the engine refuses", {"prompt": "refuse", "stream": True}),
    ("an unknown model", {"model": "nobody/nothing"}),
]


def requests() -> Iterator[tuple[str, str, bytes, str]]:
    """Path, name, body, and the secret in it, in every way that it can be sent and can go wrong."""
    numbers = itertools.count()
    for (path, least), field, (name, more) in itertools.product(LEAST.items(), FIELDS, VARIANTS):
        secret = f"alice-{next(numbers)}-4711"
        given = {key: value for key, value in more.items() if key != "model" or key in least}
        if "prompt" in more:
            given = {**given, "prompt": more["prompt"]} if "prompt" in least else {}
        value: Any = {"name": secret} if field == "metadata" else secret
        yield path, f"{field}, {name}", json.dumps({**least, **given, field: value}).encode(), secret
    for path, field in itertools.product(LEAST, FIELDS):
        for name, value in (("a wrong type", [0]), ("an object", {"a": {}}), ("a very long one", "x" * 100_000)):
            secret = f"alice-{next(numbers)}-4711"
            text = json.dumps({**LEAST[path], field: value}).replace("[0]", f'["{secret}"]')
            text = text.replace("{}", f'"{secret}"').replace("xxxx", f"{secret}x", 1)
            yield path, f"{field}, {name}", text.encode(), secret
        secret = f"alice-{next(numbers)}-4711"
        broken = json.dumps({**LEAST[path], field: secret}).encode()[:-1]
        yield path, f"{field}, no JSON", broken, secret


@pytest.fixture
async def bus() -> AsyncIterator[BusSettings]:
    server = EmbeddedServer()
    yield await server.start(BusSettings())
    await server.stop()


async def test_sensitive_fields_are_in_no_log_and_in_no_message(bus: BusSettings, tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def listen(message: Msg) -> None:
        heard.append(f"{message.subject} {message.headers}".encode() + message.data)

    client = await connect(bus, "listener")
    await client.subscribe(">", cb=listen, pending_msgs_limit=0, pending_bytes_limit=0)
    environment = {**bus.to_env(), "SIE_LOG_LEVEL": "debug", "SIE_LOAD_PATIENCE_S": "5"}
    server = Server(tmp_path / "gateway.log", environment)
    worker_log = tmp_path / "worker.log"
    with worker_log.open("wb") as log:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bus.fake_worker"),
            env={**os.environ, **environment},
            cwd=ROOT,
            stdout=log,
            stderr=asyncio.subprocess.STDOUT,
        )
    told: dict[str, tuple[str, str]] = {}
    try:
        await asyncio.to_thread(server.start)
        first = json.dumps(LEAST[COMPLETIONS]).encode()
        await asyncio.to_thread(server.wait, lambda: post(server, COMPLETIONS, first)[0] == 200, WORKER_START_S, "work")
        for path, name, body, secret in requests():
            status, answer = await asyncio.to_thread(post, server, path, body)
            field, _, way = name.partition(", ")
            if way in ("answered", "streamed") and not (way == "streamed" and path == RESPONSES):
                assert status == (200 if field in ACCEPTED.get(path, ()) else 400), (path, name, answer)
            told[secret] = (path, name)
            assert secret not in str(answer), (path, name)
        await client.flush()
    finally:
        left = await asyncio.to_thread(server.stop)
        worker.send_signal(signal.SIGTERM)
        await worker.wait()
        await client.close()
    assert left == []
    said = b"\n".join(heard)
    logs = server.log.read_bytes() + worker_log.read_bytes()
    # the ears work: what should travel and be logged does
    assert said.count(PLAIN.encode()) > 10
    assert logs.count(b"/v1/chat/completions") > 10
    assert b"scripted" in logs
    assert {secret: at for secret, at in told.items() if secret.encode() in said} == {}
    assert {secret: at for secret, at in told.items() if secret.encode() in logs} == {}


def post(server: Server, path: str, body: bytes) -> tuple[int, Any]:
    return server.request("POST", path, body, {"content-type": "application/json"})

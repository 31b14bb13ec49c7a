from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engines.bus.server import EmbeddedServer
from engines.bus.settings import BusSettings
from engines.catalog import Catalog
from engines.cluster import Cluster
from engines.protocol.cluster import Answer, Route, Timeouts
from engines.protocol.events import AnyEvent
from engines.protocol.work import GenerateWork, Sampling

ROOT = Path(__file__).parents[2]
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def cluster_of() -> Callable[..., object]:
    """Start a cluster whose worker has scripted engines; keyword arguments are environment variables."""

    @asynccontextmanager
    async def start(bus: BusSettings | None = None, **environ: str) -> AsyncIterator[Cluster]:
        made = scripted(bus or BusSettings(ack_wait=1.0), environ)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()

    return start


@pytest.fixture
async def unstarted_cluster() -> AsyncIterator[Cluster]:
    made = scripted(BusSettings(), {})
    yield made
    await made.stop()


@pytest.fixture
async def bus() -> AsyncIterator[BusSettings]:
    server = EmbeddedServer()
    yield await server.start(BusSettings(ack_wait=1.0))
    await server.stop()


@asynccontextmanager
async def gateway(bus: BusSettings) -> AsyncIterator[Cluster]:
    made = Cluster(Catalog.from_env({}), bus, environ={})
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def worker(bus: BusSettings, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bus.fake_worker", *arguments, env={**os.environ, **bus.to_env()}, cwd=ROOT
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


def scripted(bus: BusSettings, environ: dict[str, str]) -> Cluster:
    command = ["/usr/bin/env", *(f"{name}={value}" for name, value in environ.items())]
    command += [sys.executable, "-m", "tests.bus.fake_worker"]
    return Cluster(Catalog.from_env({}), bus, environ={"SIE_PRELOAD_MODELS": "", **environ}, worker_command=command)


def generate(prompt: str, *, stream: bool = True, model: str = MODEL, key: str | None = None) -> GenerateWork:
    return GenerateWork(
        request_id=uuid.uuid4().hex,
        model=model,
        prompt=prompt,
        stream=stream,
        sampling=Sampling(max_tokens=8),
        routing_key=key,
    )


async def ask(
    cluster: Cluster,
    prompt: str,
    *,
    stream: bool = True,
    overall: float = 20.0,
    machine_profile: str | None = None,
    key: str | None = None,
) -> list[AnyEvent]:
    """All events of one generation."""
    route = Route(machine_profile=machine_profile)
    answer = await cluster.dispatcher.submit(generate(prompt, stream=stream, key=key), route, Timeouts(overall))
    return await collect(answer)


async def collect(answer: Answer) -> list[AnyEvent]:
    return [event async for event in answer]


async def until(condition: Callable[[], bool], limit: float = 30.0) -> None:
    """Wait for what heart-beats will tell."""
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0.02)

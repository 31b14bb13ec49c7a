from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from engines.bus.settings import BusSettings
from engines.catalog import Catalog
from engines.cluster import Cluster
from engines.protocol.cluster import Answer, Route, Timeouts
from engines.protocol.events import AnyEvent
from engines.protocol.work import GenerateWork, Sampling

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


def scripted(bus: BusSettings, environ: dict[str, str]) -> Cluster:
    command = ["/usr/bin/env", *(f"{name}={value}" for name, value in environ.items())]
    command += [sys.executable, "-m", "tests.bus.fake_worker"]
    return Cluster(Catalog.from_env({}), bus, environ={"SIE_PRELOAD_MODELS": "", **environ}, worker_command=command)


def generate(prompt: str, *, stream: bool = True, model: str = MODEL) -> GenerateWork:
    request_id = uuid.uuid4().hex
    return GenerateWork(
        request_id=request_id, model=model, prompt=prompt, stream=stream, sampling=Sampling(max_tokens=8)
    )


async def ask(
    cluster: Cluster, prompt: str, *, stream: bool = True, overall: float = 20.0, machine_profile: str | None = None
) -> list[AnyEvent]:
    """All events of one generation."""
    route = Route(machine_profile=machine_profile)
    answer = await cluster.dispatcher.submit(generate(prompt, stream=stream), route, Timeouts(overall))
    return await collect(answer)


async def collect(answer: Answer) -> list[AnyEvent]:
    return [event async for event in answer]


async def until(condition: Callable[[], bool], limit: float = 30.0) -> None:
    """Wait for what heart-beats will tell."""
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0.02)

"""Single faults on a NATS cluster of three: a leader dies, a worker dies, work is published twice, answers are lost.

The gateway is the test's own process, so that its events can be looked at one by one.
"""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engines.bus.settings import BusSettings
from engines.catalog import Catalog
from engines.cluster import Cluster
from engines.protocol.cluster import Answer, Route, Timeouts
from engines.protocol.events import AnyEvent, Completed, Delta, Failed
from engines.protocol.work import GenerateWork, Sampling

from . import answers
from .testbed import MODELS, Process, Testbed, until

TIMEOUTS = Timeouts(60.0)


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Testbed]:
    """Three nodes, two workers, and no gateway."""
    made = Testbed(tmp_path, gateways=0, workers=2, settings={})
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def gateway(bed: Testbed, name: str = "gateway-here") -> AsyncIterator[Cluster]:
    bus = BusSettings(url=bed.bus(name), replicas=3, ack_wait=2.0)
    made = Cluster(Catalog.from_env({"SIE_MODELS_DIR": str(MODELS)}), bus, environ={})
    await made.start()
    try:
        await until(lambda: len(healthy(made)) == len(bed.workers), 60.0, "the workers", bed.tail)
        yield made
    finally:
        await made.stop()


def healthy(cluster: Cluster) -> list[str]:
    """Workers that are well and have the model."""
    ready = [w for w in cluster.dispatcher.workers() if w.healthy]
    return [w.name for w in ready if any(m.name == answers.TALKER and m.state == "loaded" for m in w.models)]


def work(words: int, ms: int, *, stream: bool) -> GenerateWork:
    request_id = uuid.uuid4().hex
    text = answers.question(request_id, words, ms)
    return GenerateWork(
        request_id=request_id, model=answers.TALKER, prompt=text, stream=stream, sampling=Sampling(max_tokens=99)
    )


async def collect(answer: Answer) -> list[AnyEvent]:
    return [event async for event in answer]


def text_of(events: list[AnyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def expected(asked: GenerateWork) -> str:
    return "".join(answers.words(asked.prompt or ""))


async def running(bed: Testbed, *asked: GenerateWork) -> None:
    """Wait until engines have begun on the work."""

    def begun() -> bool:
        return bed.runs.exists() and {one.request_id for one in asked} <= set(bed.runs.read_text().split())

    await until(begun, 30.0, "the engines to begin", bed.tail)


def process_of(bed: Testbed, worker: str) -> Process:
    """The process of the worker of that name, which its log tells."""
    return next(process for process in bed.workers if f"worker {worker}: serving" in process.log.read_text())


async def test_streams_and_blocking_requests_outlive_the_leader_of_their_queue(bed: Testbed) -> None:
    async with gateway(bed) as here:
        asked = [work(60, 50, stream=number % 2 == 0) for number in range(20)]
        open_ones = [asyncio.create_task(collect(await here.dispatcher.submit(w, Route(), TIMEOUTS))) for w in asked]
        await running(bed, *asked)
        bed.nodes[bed.leader()].send(signal.SIGKILL)
        later = [work(3, 1, stream=number % 2 == 0) for number in range(20)]
        during = [asyncio.create_task(collect(await here.dispatcher.submit(w, Route(), TIMEOUTS))) for w in later]
        for one, task in zip([*asked, *later], [*open_ones, *during], strict=True):
            events = await task
            assert isinstance(events[-1], Completed), events[-1]
            assert text_of(events) == expected(one)


async def test_a_blocking_request_survives_its_worker_and_a_stream_that_has_begun_ends_with_an_error(
    bed: Testbed,
) -> None:
    async with gateway(bed) as here:
        stream, blocking = work(500, 50, stream=True), work(60, 50, stream=False)
        streaming = await here.dispatcher.submit(stream, Route(), TIMEOUTS)
        events = aiter(streaming)
        admitted, first = await anext(events), await anext(events)
        # whichever of them has the blocking one
        answer = asyncio.create_task(collect(await here.dispatcher.submit(blocking, Route(), TIMEOUTS)))
        await running(bed, blocking)
        for process in bed.workers:
            process.send(signal.SIGKILL)
            await process.ended()
            process.start()
        seen = [event async for event in events]
        assert isinstance(seen[-1], Failed)
        assert seen[-1].code == "transport_failure"
        assert admitted.worker in seen[-1].message
        assert text_of([first])
        assert expected(stream).startswith(text_of([first, *seen]))
        whole = await answer
        assert isinstance(whole[-1], Completed)
        assert text_of(whole) == expected(blocking)
        assert bed.runs.read_text().split().count(blocking.request_id) == 2
        assert bed.runs.read_text().split().count(stream.request_id) == 1


async def test_work_that_is_published_twice_is_done_once(bed: Testbed) -> None:
    async with gateway(bed) as one, gateway(bed, "gateway-too") as other:
        asked = work(3, 100, stream=True)
        first = await one.dispatcher.submit(asked, Route(), TIMEOUTS)
        await other.dispatcher.submit(asked, Route(), TIMEOUTS)
        events = await collect(first)
        assert text_of(events) == expected(asked)
        later = work(1, 1, stream=True)
        assert text_of(await collect(await one.dispatcher.submit(later, Route(), TIMEOUTS))) == expected(later)
        assert bed.runs.read_text().split() == [asked.request_id, later.request_id]


async def test_a_gateway_whose_connection_breaks_misses_nothing(bed: Testbed) -> None:
    async with gateway(bed) as here:
        asked = [work(40, 50, stream=number % 2 == 0) for number in range(20)]
        open_ones = [asyncio.create_task(collect(await here.dispatcher.submit(w, Route(), TIMEOUTS))) for w in asked]
        await running(bed, *asked)
        links = bed.ways_in("gateway-here")
        for _ in range(3):
            bed.network.reset(links)
            await asyncio.sleep(0.3)
        # the last ones end while nobody hears it
        bed.network.cut(links)
        bed.network.reset(links)
        await asyncio.sleep(2.5)
        bed.network.heal(links)
        for one, task in zip(asked, open_ones, strict=True):
            events = await task
            assert isinstance(events[-1], Completed), events[-1]
            assert text_of(events) == expected(one)
        assert len(bed.runs.read_text().split()) == len(asked)

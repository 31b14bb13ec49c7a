"""The load of lanes as gateways see it, on a real bus."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
from nats.aio.client import Client

from engines.bus.connection import connect
from engines.bus.server import EmbeddedServer
from engines.bus.settings import BusSettings
from engines.bus.streams import ensure_consumer, ensure_stream
from engines.bus.subjects import Lane
from engines.dispatcher.lanes import FRESH, BusLanes
from engines.protocol.cluster import Route, Timeouts, WorkerStatus
from engines.protocol.lanes import LaneLoad

from .conftest import collect, generate, until

L4 = Lane("default", "l4", "default")
ODD = Lane("batch", "a100.40gb/spot", "vision")


class Source:
    """A dispatcher's half of the truth."""

    def __init__(self, client: Client | None, *workers: WorkerStatus) -> None:
        self.client = client
        self.listed = workers

    def workers(self) -> Sequence[WorkerStatus]:
        return self.listed

    def open_lanes(self) -> Counter[Lane]:
        return Counter({L4: 2})


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    server = EmbeddedServer()
    made = await connect(await server.start(BusSettings()), "test")
    yield made
    await made.close()
    await server.stop()


async def queue(client: Client, lane: Lane, waiting: int, taken: int) -> None:
    """Put messages into the queue of a lane and take some without settling them."""
    js = client.jetstream()
    await ensure_stream(js, lane, BusSettings())
    await ensure_consumer(js, lane, BusSettings())
    for _ in range(waiting + taken):
        await js.publish(lane.subject("some/model"), b"x")
    if taken:
        pull = await js.pull_subscribe_bind(lane.consumer, lane.stream)
        assert len(await pull.fetch(taken, timeout=5)) == taken


async def test_queues_are_counted_though_no_worker_is_left(client: Client) -> None:
    await queue(client, L4, waiting=4, taken=3)
    await queue(client, Lane("default", "cpu", "default"), waiting=1, taken=0)
    await queue(client, ODD, waiting=2, taken=0)
    odd = WorkerStatus(name="w", pool=ODD.pool, machine_profile=ODD.machine_profile, bundle=ODD.bundle)
    assert await BusLanes(Source(client, odd)).load() == [
        LaneLoad(**ODD._asdict(), queued=2, unacknowledged=0),
        LaneLoad(pool="default", machine_profile="cpu", bundle="default", queued=1, unacknowledged=0),
        LaneLoad(pool="default", machine_profile="l4", bundle="default", open=2, queued=4, unacknowledged=3),
    ]


async def test_more_lanes_than_one_answer_of_the_bus_holds(client: Client) -> None:
    lanes = [Lane("default", f"profile-{number:03}", "default") for number in range(300)]
    js = client.jetstream()
    await ensure_stream(js, L4, BusSettings())
    await asyncio.gather(*(ensure_consumer(js, lane, BusSettings()) for lane in lanes))
    loads = await BusLanes(Source(client)).load()
    assert [load.machine_profile for load in loads] == ["l4", *(lane.machine_profile for lane in lanes)]


async def test_many_who_ask_at_once_cost_one_count(client: Client) -> None:
    now = 100.0
    lanes = BusLanes(Source(client), lambda: now)
    before = client.stats["out_msgs"]
    await asyncio.gather(*(lanes.load() for _ in range(50)))
    once = client.stats["out_msgs"] - before
    now += FRESH
    await lanes.load()
    assert 0 < once == client.stats["out_msgs"] - before - once


@pytest.mark.parametrize("connected", [True, False])
async def test_without_an_answer_of_the_bus_only_the_own_requests_are_told(connected: bool) -> None:
    server = EmbeddedServer()
    client = await connect(await server.start(BusSettings()), "test") if connected else None
    await server.stop()
    loads = await BusLanes(Source(client)).load()
    assert loads == [LaneLoad(**L4._asdict(), open=2)]
    if client is not None:
        with contextlib.suppress(Exception):
            await client.close()


async def test_a_stream_that_runs_is_open_although_its_message_is_settled(cluster_of) -> None:
    async with cluster_of() as cluster:
        lane = {"pool": "default", "machine_profile": "cpu", "bundle": "default"}
        answers = [
            await cluster.dispatcher.submit(generate(prompt, stream=stream), Route(), Timeouts(30.0))
            for prompt, stream in (("slow:1000", True), ("block:1000", False))
        ]
        try:
            running = asyncio.create_task(collect(answers[0]))
            await until(lambda: answers[0].begun)
            async with asyncio.timeout(20):
                while (load := (await cluster.lanes.load())[0]).unacknowledged != 1:  # noqa: ASYNC110  # the bus's count
                    await asyncio.sleep(0.1)
            assert load == LaneLoad(**lane, open=2, queued=0, unacknowledged=1)
        finally:
            running.cancel()
            for answer in answers:
                await answer.aclose()

"""Deliveries before they are jobs: what they take of the room, and how they end when their work does not come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats.errors
import pytest
from msgspec import structs
from nats.js.errors import DigestMismatchError

from engines.bus import pull, subjects, wire
from engines.bus.payloads import Payloads
from engines.bus.settings import BusSettings
from engines.bus.subjects import Direct, Lane
from engines.catalog import Catalog
from engines.cluster import Cluster
from engines.protocol.cluster import Answer, Route, Timeouts
from engines.protocol.events import Completed, Failed
from engines.protocol.work import GenerateWork
from engines.worker.options import WorkerOptions
from engines.worker.worker import Worker

from .conftest import MODEL, ask, collect, gateway, generate, until
from .fake_worker import ScriptedEngine

LANE = Lane("default", "cpu", "default")


@asynccontextmanager
async def serving(bus: BusSettings, most: int = 512) -> AsyncIterator[tuple[Cluster, Worker]]:
    """A gateway, and a worker in this process."""
    options = WorkerOptions(name="here", drain=0.0, max_inflight=most)
    worker = Worker(options, bus, Catalog.from_env({}), ScriptedEngine)
    running = asyncio.create_task(worker.run())
    async with gateway(bus) as cluster:
        await until(lambda: len(cluster.dispatcher.workers()) == 1)
        try:
            yield cluster, worker
        finally:
            worker.stop()
            await running


def unheard() -> GenerateWork:
    """Work whose gateway has gone."""
    work = generate("echo:1")
    work.reply_subject = subjects.reply("gone")
    return work


async def publish(cluster: Cluster, subject: str, data: bytes, headers: dict[str, str] | None = None) -> None:
    await cluster.dispatcher.client.jetstream().publish(subject, data, headers=headers)


async def emptied(cluster: Cluster, stream: str, left: int = 0) -> None:
    """Wait until no more than ``left`` messages are in a queue."""
    js = cluster.dispatcher.client.jetstream()
    async with asyncio.timeout(20.0):
        while (await js.stream_info(stream)).state.messages > left:  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0.02)


async def test_a_backlog_that_nobody_waits_for_goes_without_a_heartbeat(bus, monkeypatch):
    monkeypatch.setattr(pull, "HEARTBEAT", 14.0)
    async with serving(bus, most=4) as (cluster, worker):
        for _ in range(20):
            work = unheard()
            worker._jobs.cancel([work.request_id])
            await publish(cluster, LANE.subject(MODEL), wire.encode(work))
        await emptied(cluster, LANE.stream)
        assert worker.status(0, 1).requests == 0


async def test_the_own_queue_is_taken_from_without_a_heartbeat(bus, monkeypatch):
    monkeypatch.setattr(pull, "HEARTBEAT", 14.0)
    monkeypatch.setattr("engines.worker.intake.DIRECT_ROOM", 4)
    own = Direct("here")
    async with serving(bus) as (cluster, _):
        await until(lambda: cluster.dispatcher.workers()[0].room > 0)  # it has its queue
        for _ in range(20):
            await publish(cluster, own.subject(LANE, MODEL), wire.encode(unheard()))
        await emptied(cluster, own.stream)


async def test_what_is_being_opened_takes_room(bus, monkeypatch):
    fetched = asyncio.Event()
    fetch = Payloads.fetch

    async def fetching(payloads: Payloads, headers: dict[str, str], data: bytes) -> bytes:
        await fetched.wait()
        return await fetch(payloads, headers, data)

    async with serving(bus, most=2) as (cluster, worker):
        await ask(cluster, "echo:1")
        monkeypatch.setattr(Payloads, "fetch", fetching)
        answers = [asyncio.create_task(ask(cluster, "echo:1")) for _ in range(6)]
        await until(lambda: len(worker._opening) == 2)
        assert worker.status(0, 1).room == 0
        fetched.set()
        assert all(isinstance(events[-1], Completed) for events in await asyncio.gather(*answers))
        assert worker.status(0, 1).room == 2


async def republished(cluster: Cluster, payload: str) -> Answer:
    """A request that nobody answers, whose work is said to be in the bucket under that name."""
    answer = await cluster.dispatcher.submit(generate("block:600", stream=False), Route(), Timeouts(60.0))
    await anext(aiter(answer))
    headers = {
        subjects.ID_HEADER: subjects.message_id(answer.request_id, 1),
        subjects.REPLY_HEADER: subjects.reply(cluster.dispatcher.gateway),
        subjects.PAYLOAD_HEADER: payload,
    }
    await publish(cluster, LANE.subject(MODEL), b"", headers)
    return answer


async def test_work_whose_payload_is_gone_fails_at_once_and_leaves_no_letter(bus):
    async with serving(bus) as (cluster, _):
        failed = (await collect(await republished(cluster, "gone")))[-1]
        assert isinstance(failed, Failed)
        assert (failed.code, failed.retry_after) == ("transport_failure", 1)
        await emptied(cluster, LANE.stream, left=1)  # of the publication that nobody answers
        assert cluster.dispatcher.dead_letters() == {}


async def test_a_payload_that_is_gone_does_not_end_the_same_work_that_is_being_done(bus):
    async with serving(bus) as (cluster, worker):
        answer = await cluster.dispatcher.submit(generate("block:2", stream=False), Route(), Timeouts(60.0))
        await anext(aiter(answer))
        headers = {
            subjects.ID_HEADER: answer.request_id,
            subjects.REPLY_HEADER: subjects.reply(cluster.dispatcher.gateway),
            subjects.PAYLOAD_HEADER: "gone",
        }
        # another queue, so that its id is not taken for a duplicate
        await publish(cluster, Direct("here").subject(LANE, MODEL), b"", headers)
        await emptied(cluster, Direct("here").stream)
        assert isinstance((await collect(answer))[-1], Completed)
        assert worker._opening == {}


@pytest.mark.parametrize("fault", [nats.errors.TimeoutError, DigestMismatchError, OSError])
async def test_work_that_the_bus_did_not_hand_out_is_delivered_again(bus, monkeypatch, fault):
    fetch = Payloads.fetch
    faults = [fault(), fault()]

    async def fetching(payloads: Payloads, headers: dict[str, str], data: bytes) -> bytes:
        if faults:
            raise faults.pop()
        return await fetch(payloads, headers, data)

    # the bus itself would deliver it again after a minute only
    async with serving(structs.replace(bus, ack_wait=60.0)) as (cluster, _):
        monkeypatch.setattr(Payloads, "fetch", fetching)
        assert isinstance((await ask(cluster, "echo:1"))[-1], Completed)


async def test_a_fault_of_the_bus_is_not_told_as_one_of_the_work(bus, monkeypatch):
    async def fetching(_payloads: Payloads, _headers: dict[str, str], _data: bytes) -> bytes:
        raise nats.errors.TimeoutError

    async with serving(structs.replace(bus, max_deliver=2)) as (cluster, _):
        monkeypatch.setattr(Payloads, "fetch", fetching)
        (failed,) = await ask(cluster, "echo:1")
        assert isinstance(failed, Failed)
        assert (failed.code, failed.retry_after) == ("transport_failure", 1)
        await emptied(cluster, LANE.stream)
        assert cluster.dispatcher.dead_letters() == {}

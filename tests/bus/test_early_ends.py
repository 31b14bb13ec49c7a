"""Work that is ended in the moment between its acceptance and its first step leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engines.bus.settings import BusSettings
from engines.bus.subjects import Direct, Lane
from engines.catalog import Catalog
from engines.cluster import Cluster
from engines.protocol.events import AnyEvent, Completed, Failed
from engines.worker.jobs import Ending, Job, Jobs
from engines.worker.options import WorkerOptions
from engines.worker.worker import Worker

from .conftest import ask, gateway, until
from .fake_worker import ScriptedEngine

QUEUES = (Lane("default", "cpu", "default"), Direct("here"))


@asynccontextmanager
async def serving(bus: BusSettings) -> AsyncIterator[tuple[Cluster, Worker]]:
    """A gateway, and a worker in this process."""
    made = Worker(WorkerOptions(name="here", drain=0.0), bus, Catalog.from_env({}), ScriptedEngine)
    running = asyncio.create_task(made.run())
    try:
        async with gateway(bus) as cluster:
            await until(lambda: len(cluster.dispatcher.workers()) == 1)
            yield cluster, made
    finally:
        made.stop()
        await running


def end_the_next(monkeypatch: pytest.MonkeyPatch, reason: Ending) -> None:
    """End the next job before the first step of its task."""
    add = Jobs.add

    def adding(jobs: Jobs, job: Job) -> None:
        monkeypatch.setattr(Jobs, "add", add)
        add(jobs, job)
        # runs before the task, which is made after this
        asyncio.get_running_loop().call_soon(job.end, reason)

    monkeypatch.setattr(Jobs, "add", adding)


async def answered(cluster: Cluster) -> list[AnyEvent]:
    """All events of one generation; waits for a worker that forgot it no longer than it has to."""
    async with asyncio.timeout(10.0):
        return await ask(cluster, "echo:1")


async def unacknowledged(cluster: Cluster) -> int:
    """Messages that the queues of the worker still hold."""
    client = cluster.dispatcher.client
    assert client is not None
    infos = [await client.jetstream().stream_info(queue.stream) for queue in QUEUES]
    return sum(info.state.messages for info in infos)


async def settled(cluster: Cluster, worker: Worker) -> None:
    """Wait until the worker has nothing on its hands: no job, no cost, no message that it still has to settle."""
    room = WorkerOptions(name="").max_inflight
    await until(lambda: not worker.status(0, 1).metrics[""]["jobs"] and worker.status(0, 1).room == room, 10.0)
    async with asyncio.timeout(10.0):
        while await unacknowledged(cluster):  # noqa: ASYNC110  # the bus has no event for it
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("reason", "code"), [("cancel", "cancelled"), ("deadline", "overall_timeout")])
async def test_work_that_ends_before_its_first_step_is_told_and_forgotten(
    bus: BusSettings, monkeypatch: pytest.MonkeyPatch, reason: Ending, code: str
) -> None:
    async with serving(bus) as (cluster, worker):
        assert isinstance((await answered(cluster))[-1], Completed)
        end_the_next(monkeypatch, reason)
        events = await answered(cluster)
        assert [event.code for event in events if isinstance(event, Failed)] == [code]
        await settled(cluster, worker)
        assert isinstance((await answered(cluster))[-1], Completed)


async def test_work_that_a_drain_ends_before_its_first_step_goes_back(
    bus: BusSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(bus) as (cluster, worker):
        assert isinstance((await answered(cluster))[-1], Completed)
        end_the_next(monkeypatch, "drain")
        # nobody drains, so the same worker takes it once more
        assert isinstance((await answered(cluster))[-1], Completed)
        await settled(cluster, worker)

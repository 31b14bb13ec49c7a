"""Keys, loaded models and refusals on a real bus: which worker has the work, and where it goes when that one cannot."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import nats.js.errors
import pytest

from engines.bus.settings import BusSettings
from engines.bus.subjects import Direct
from engines.cluster import Cluster
from engines.protocol.cluster import Route, Timeouts
from engines.protocol.events import AnyEvent, Completed, Failed

from .conftest import MODEL, ask, collect, gateway, generate, until, worker

Processes = dict[str, asyncio.subprocess.Process]


def loaded(cluster: Cluster) -> set[str]:
    """Workers that have the model loaded and take work of their own."""
    return {
        status.name
        for status in cluster.dispatcher.workers()
        if status.healthy and status.room and any(model.state == "loaded" for model in status.models)
    }


@asynccontextmanager
async def workers(
    bus: BusSettings, names: str, *options: str, having_it: str | None = None
) -> AsyncIterator[tuple[Cluster, Processes]]:
    """A gateway and workers of these one-letter names, of which ``having_it`` (all) have the model loaded."""
    having_it = names if having_it is None else having_it
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(gateway(bus))
        processes = {}
        for name in names:
            models = ["--models", MODEL] if name in having_it else []
            started = worker(bus, "--name", name, *models, *options)
            processes[name] = await stack.enter_async_context(started)
        await until(lambda: len(cluster.dispatcher.workers()) == len(names) and loaded(cluster) == set(having_it))
        yield cluster, processes


def by(events: list[AnyEvent]) -> str:
    """The worker that completed a request."""
    assert isinstance(events[-1], Completed), events[-1]
    return events[-1].worker


async def home(cluster: Cluster, key: str) -> str:
    return by(await ask(cluster, "echo:1", key=key))


async def key_of(cluster: Cluster, name: str) -> str:
    """A key whose work that worker has."""
    for key in map(str, range(100)):
        if await home(cluster, key) == name:
            return key
    raise AssertionError(f"no key of a hundred leads to {name}")


async def test_one_key_has_one_worker_and_many_keys_have_all(bus):
    async with workers(bus, "ab") as (cluster, _):
        homes = {key: await home(cluster, key) for key in map(str, range(20))}
        assert set(homes.values()) == {"a", "b"}
        for key, known in homes.items():
            assert [await home(cluster, key) for _ in range(3)] == [known] * 3
        async with gateway(bus) as other:
            await until(lambda: loaded(other) == {"a", "b"})
            assert {key: await home(other, key) for key in homes} == homes


async def test_keys_of_a_worker_that_has_gone_move_and_the_others_stay(bus):
    async with workers(bus, "abc") as (cluster, processes):
        homes = {key: await home(cluster, key) for key in map(str, range(20))}
        processes["a"].send_signal(signal.SIGTERM)
        await processes["a"].wait()
        await until(lambda: loaded(cluster) == {"b", "c"})
        after = {key: await home(cluster, key) for key in homes}
        assert {key: after[key] for key in homes if homes[key] != "a"} == {
            key: known for key, known in homes.items() if known != "a"
        }
        with pytest.raises(nats.js.errors.NotFoundError):
            await cluster.dispatcher.client.jetstream().stream_info(Direct("a").stream)


async def test_work_for_a_worker_that_is_killed_is_done_by_another(bus):
    async with workers(bus, "ab") as (cluster, processes):
        key = await key_of(cluster, "a")
        asked = asyncio.create_task(ask(cluster, "block:3", stream=False, overall=60.0, key=key))
        await until(lambda: [status.inflight_batches for status in cluster.dispatcher.workers()] == [1, 0])
        processes["a"].kill()
        assert by(await asked) == "b"


async def test_a_worker_that_shuts_down_hands_back_what_it_has_not_begun(bus):
    async with workers(bus, "ab", "--drain", "0.2") as (cluster, processes):
        key = await key_of(cluster, "a")
        asked = asyncio.create_task(ask(cluster, "block:3", stream=False, overall=60.0, key=key))
        await until(lambda: [status.inflight_batches for status in cluster.dispatcher.workers()] == [1, 0])
        processes["a"].send_signal(signal.SIGTERM)
        assert by(await asked) == "b"


async def test_work_goes_to_the_worker_that_has_the_model_loaded(bus):
    async with workers(bus, "abc", having_it="b") as (cluster, _):
        assert [by(await ask(cluster, "echo:1")) for _ in range(20)] == ["b"] * 20
        assert loaded(cluster) == {"b"}


async def test_work_that_one_worker_has_no_room_for_is_done_by_the_others(bus):
    async with workers(bus, "ab", "--kv-budget", "40") as (cluster, _):
        answers = await asyncio.gather(*(ask(cluster, "block:0.5", key="same") for _ in range(6)))
        assert {by(events) for events in answers} == {"a", "b"}


async def test_work_that_all_workers_refuse_is_told_so_at_once(bus):
    async with workers(bus, "ab", "--kv-budget", "12") as (cluster, _):
        answers = await asyncio.gather(*(ask(cluster, "block:2", overall=60.0, key="same") for _ in range(20)))
        lasts = [events[-1] for events in answers]
        failed = [last for last in lasts if isinstance(last, Failed)]
        assert failed
        assert {(last.code, last.retry_after) for last in failed} == {("rate_limit_exceeded", 1)}
        assert sum(isinstance(last, Completed) for last in lasts) == len(lasts) - len(failed) >= 2
        assert isinstance((await ask(cluster, "echo:1", key="same"))[-1], Completed)


async def test_work_that_is_late_on_its_own_worker_is_tried_once_by_all(bus):
    async with workers(bus, "ab") as (cluster, _):
        answer = await cluster.dispatcher.submit(
            generate("late:600", key="k"), Route(), Timeouts(60.0, first_chunk=0.5)
        )
        assert isinstance((await collect(answer))[-1], Completed)
        await until(lambda: [status.inflight_batches for status in cluster.dispatcher.workers()] == [0, 0])


async def test_work_in_a_lane_whose_last_worker_dies_goes_to_another_lane_of_the_bundle(bus):
    lane = ("--machine-profile", "l4", "--models", MODEL)
    async with gateway(bus) as cluster, worker(bus, "--name", "b"), worker(bus, "--name", "a", *lane) as killed:
        await until(lambda: len(cluster.dispatcher.workers()) == 2 and loaded(cluster) == {"a"})
        asked = asyncio.create_task(ask(cluster, "block:3", stream=False, overall=60.0))
        await until(lambda: [status.inflight_batches for status in cluster.dispatcher.workers()] == [1, 0])
        killed.kill()
        assert by(await asked) == "b"


async def test_a_queue_that_was_lost_is_made_anew_and_meanwhile_work_goes_to_the_lane(bus):
    async with workers(bus, "ab") as (cluster, _):
        key = await key_of(cluster, "a")
        js = cluster.dispatcher.client.jetstream()
        await js.delete_stream(Direct("a").stream)
        assert isinstance((await ask(cluster, "echo:1", key=key))[-1], Completed)
        async with asyncio.timeout(60.0):
            while Direct("a").stream not in {info.config.name for info in await js.streams_info()}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert [await home(cluster, key) for _ in range(5)] == ["a"] * 5

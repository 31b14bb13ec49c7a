"""A bus of its own: several gateways, and workers started by hand, as with ``SIE_NATS_URL`` set."""

from __future__ import annotations

import asyncio
import socket

import pytest

from engines.bus.server import EmbeddedServer
from engines.bus.settings import BusSettings
from engines.protocol.cluster import DispatchError
from engines.protocol.events import Completed

from .conftest import ask, gateway, until, worker


async def test_gateways_and_workers_share_a_bus(bus):
    async with gateway(bus) as one, gateway(bus) as two:
        with pytest.raises(DispatchError) as refused:
            await ask(one, "echo:1")
        assert refused.value.code == "provisioning"
        async with worker(bus, "--name", "a"), worker(bus, "--name", "b"):
            for cluster in (one, two):
                await until(lambda cluster=cluster: [w.name for w in cluster.dispatcher.workers()] == ["a", "b"])
            counts = [1 + n % 9 for n in range(100)]
            first = asyncio.gather(*(ask(one, f"echo:{n}") for n in counts))
            second = asyncio.gather(*(ask(two, f"echo:{n + 1}") for n in counts))
            assert [len(events) - 2 for events in await first] == counts
            assert [len(events) - 2 for events in await second] == [n + 1 for n in counts]
            used = {events[-1].worker for events in [*first.result(), *second.result()]}
            assert used == {"a", "b"}
        await until(lambda: not one.dispatcher.workers())


async def test_each_machine_profile_has_a_lane_of_its_own(bus):
    async with gateway(bus) as one, worker(bus, "--name", "a", "--machine-profile", "l4"), worker(bus, "--name", "b"):
        await until(lambda: len(one.dispatcher.workers()) == 2)
        profiles = {status.name: status.machine_profile for status in one.dispatcher.workers()}
        assert profiles["a"] == "l4"
        for _ in range(5):
            events = await ask(one, "echo:1", machine_profile="L4")
            assert isinstance(events[-1], Completed)
            assert events[-1].worker == "a"


async def test_another_worker_takes_over_from_a_killed_one(bus):
    async with gateway(bus) as one, worker(bus, "--name", "a") as killed:
        await until(lambda: len(one.dispatcher.workers()) == 1)
        asked = asyncio.create_task(ask(one, "block:3", stream=False, overall=60.0))
        await until(lambda: [status.inflight_batches for status in one.dispatcher.workers()] == [1])
        async with worker(bus, "--name", "b"):
            killed.kill()
            last = (await asked)[-1]
            assert isinstance(last, Completed)
            assert last.worker == "b"


async def test_a_bus_that_comes_up_later_is_joined():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = EmbeddedServer(port=port)
    settings = BusSettings(url=f"nats://127.0.0.1:{port}", token=server.token)
    async with gateway(settings) as one:
        assert not one.dispatcher.connected
        with pytest.raises(DispatchError) as refused:
            await ask(one, "echo:1")
        assert refused.value.code == "queue_unavailable"
        bus = await server.start(BusSettings())
        try:
            async with worker(bus, "--name", "a"):
                await until(lambda: len(one.dispatcher.workers()) == 1)
                assert isinstance((await ask(one, "echo:1"))[-1], Completed)
        finally:
            await server.stop()

"""The bucket behind the pools, on a real NATS server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from engines.bus.connection import connect
from engines.bus.server import EmbeddedServer
from engines.pools import Bucket, NatsPools
from engines.protocol.pools import PoolsUnavailable, UnknownPool
from tests.bus.conftest import until
from tests.pools.conftest import settings, spec


@pytest.fixture
async def gateways(server: EmbeddedServer) -> AsyncIterator[tuple[NatsPools, NatsPools]]:
    made = NatsPools(), NatsPools()
    for pools in made:
        await pools.start(settings(server))
    yield made
    for pools in made:
        await pools.stop()


async def test_every_gateway_sees_one_truth(gateways: tuple[NatsPools, NatsPools]) -> None:
    one, other = gateways
    made = await one.put(spec())
    assert one.find("MINE") == made, "at once where it was made"
    assert await other.get("mine") == made, "and elsewhere when it is asked for"
    await until(lambda: other.find("mine") == made)
    changed = await other.put(spec(gpus={"l4": 2}))
    assert changed.created_at == made.created_at
    await until(lambda: one.find("mine") == changed)
    renewed = await one.renew("mine")
    assert renewed.last_renewed > changed.last_renewed
    await other.delete("mine")
    assert other.find("mine") is None
    await until(lambda: one.find("mine") is None)
    for action in (one.renew, one.delete, one.get):
        with pytest.raises(UnknownPool):
            await action("mine")


async def test_a_gateway_that_starts_later_finds_the_pools(
    server: EmbeddedServer, gateways: tuple[NatsPools, NatsPools]
) -> None:
    await gateways[0].put(spec("a"))
    await gateways[1].put(spec("b"))
    for pools in gateways:
        await pools.stop()
    late = NatsPools()
    await late.start(settings(server))
    await until(lambda: [record.spec.name for record in late.all()] == ["a", "b"])
    await late.stop()


async def test_changes_at_the_same_time_are_all_made(gateways: tuple[NatsPools, NatsPools]) -> None:
    one, other = gateways
    await one.put(spec())
    await asyncio.gather(*(pools.renew("mine") for pools in (one, other) * 5))
    await asyncio.gather(*(pools.put(spec(f"p{i}")) for i in range(10) for pools in (one, other)))
    await until(lambda: len(one.all()) == len(other.all()) == 11)
    assert one.all() == other.all()


async def test_what_expires_is_swept_and_what_is_renewed_stays(gateways: tuple[NatsPools, NatsPools]) -> None:
    one, other = gateways
    await one.put(spec("brief", ttl_seconds=0))
    await one.put(spec("long", ttl_seconds=600))
    await until(lambda: [record.spec.name for record in other.all()] == ["long"])
    with pytest.raises(UnknownPool):
        await other.get("brief")


async def test_a_bus_that_forgets_is_told_again(server: EmbeddedServer, gateways: tuple[NatsPools, NatsPools]) -> None:
    one, other = gateways
    await one.put(spec())
    await until(lambda: other.find("mine") is not None)
    assert server._process is not None
    server._process.kill()

    async def there() -> bool:
        try:
            await one.put(spec("after"))
        except PoolsUnavailable:
            return False
        return True

    async with asyncio.timeout(60):
        while not await there():  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0.1)
    await until(lambda: {record.spec.name for record in other.all()} == {"mine", "after"}, 60)
    assert {record.spec.name for record in one.all()} == {"mine", "after"}


async def test_a_worker_follows_and_never_creates(server: EmbeddedServer) -> None:
    client = await connect(settings(server), "worker")
    follower = Bucket(client, settings(server), keeper=False)
    follower.start()
    pools = NatsPools()
    await pools.start(settings(server))
    await pools.put(spec(pinned_models=["m"]))
    await until(lambda: "mine" in follower.entries())
    assert follower.entries()["mine"].record.spec.pinned_models == ("m",)
    await follower.stop()
    await pools.stop()
    await client.close()


async def test_before_the_bus_is_there_there_are_no_pools() -> None:
    pools = NatsPools()
    assert pools.all() == ()
    assert pools.find("mine") is None
    with pytest.raises(PoolsUnavailable):
        await pools.put(spec())

"""The bucket when it is lost, made anew and tidied, on a real NATS server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import nats.errors
import pytest
from nats.js import JetStreamContext
from nats.js.kv import KeyValue

from engines.bus.connection import connect
from engines.bus.server import EmbeddedServer
from engines.pools import Bucket, NatsPools, bucket
from engines.pools.bucket import STREAM, Conflict
from engines.protocol.pools import PoolRecord, UnknownPool
from tests.bus.conftest import until
from tests.pools.conftest import settings, spec


@pytest.fixture
async def pools(server: EmbeddedServer) -> AsyncIterator[NatsPools]:
    made = NatsPools()
    await made.start(settings(server))
    yield made
    await made.stop()


@pytest.fixture
async def pair(server: EmbeddedServer) -> AsyncIterator[tuple[Bucket, Bucket]]:
    """Two copies, which follow nothing until they are started."""
    clients = [await connect(settings(server), f"copy-{number}") for number in (1, 2)]
    made = Bucket(clients[0], settings(server)), Bucket(clients[1], settings(server))
    yield made
    for one, client in zip(made, clients, strict=True):
        await one.stop()
        await client.close()


def record(name: str = "mine", renewed: float = 0.0) -> PoolRecord:
    return PoolRecord(spec=spec(name), created_at=0.0, last_renewed=renewed)


async def stored(js: JetStreamContext) -> int:
    """Records and markers that the bucket holds."""
    return int((await js.stream_info(STREAM)).state.messages)


async def emptied(js: JetStreamContext) -> None:
    async with asyncio.timeout(20):
        while await stored(js):  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0.05)


async def test_a_pool_outlives_its_bucket_for_whoever_renews_or_deletes_it(
    pools: NatsPools, js: JetStreamContext
) -> None:
    await pools.put(spec("a"))
    await pools.put(spec("b"))
    await js.delete_stream(STREAM)
    renewed = await pools.renew("a")
    assert pools.find("a") == renewed
    await js.delete_stream(STREAM)
    await pools.delete("b")
    assert [one.spec.name for one in pools.all()] == ["a"]
    for action in (pools.get, pools.renew, pools.delete):
        with pytest.raises(UnknownPool):
            await action("b")


async def test_the_copy_keeps_what_it_has_until_the_new_bucket_has_shown_its_own(
    pair: tuple[Bucket, Bucket], js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = pair
    await one.write("mine", record(), None)
    await js.delete_stream(STREAM)
    known: list[list[str]] = []
    watchall = KeyValue.watchall

    async def seen(store: KeyValue, **options: Any) -> KeyValue.KeyWatcher:
        known.append(list(one.entries()))
        return await watchall(store, **options)

    monkeypatch.setattr(KeyValue, "watchall", seen)
    one.start()
    await one.ready.wait()
    assert known == [["mine"]]
    assert list(one.entries()) == ["mine"]


async def test_a_lost_bucket_is_made_anew_once_for_all_who_ask(
    pair: tuple[Bucket, Bucket], js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = pair
    for name in ("a", "b"):
        await one.write(name, record(name), None)
    await js.delete_stream(STREAM)
    made = 0
    create = JetStreamContext.create_key_value

    async def counted(context: JetStreamContext, *arguments: Any) -> KeyValue:
        nonlocal made
        made += 1
        store = await create(context, *arguments)
        if made > 1:
            await one.ready.wait()  # the slower one is done when the other's watch has shown everything
        return store

    monkeypatch.setattr(JetStreamContext, "create_key_value", counted)
    one.reconnected()
    one.start()
    await asyncio.gather(*(one.read(name) for name in ("a", "b", "a")))
    await one.ready.wait()
    assert (made, sorted(one.entries())) == (1, ["a", "b"])


async def test_a_fault_while_pools_are_put_back_loses_none(
    server: EmbeddedServer, pools: NatsPools, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "b", "c"]
    for name in names:
        await pools.put(spec(name))
    await js.delete_stream(STREAM)
    calls = 0
    update = KeyValue._update

    async def failing(store: KeyValue, *arguments: Any, **options: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise nats.errors.TimeoutError
        return int(await update(store, *arguments, **options))

    monkeypatch.setattr(KeyValue, "_update", failing)
    late = NatsPools()
    try:
        await until(lambda: calls > 2)
        await late.start(settings(server))
        await until(lambda: [one.spec.name for one in late.all()] == names)
        assert [one.spec.name for one in pools.all()] == names
    finally:
        await late.stop()


async def test_each_puts_back_what_the_new_bucket_lacks_and_the_latest_renewal_wins(
    pair: tuple[Bucket, Bucket], js: JetStreamContext
) -> None:
    one, other = pair
    await one.write("both", record("both", renewed=1.0), None)
    await one.write("first", record("first"), None)
    await other.read("both")
    entry = await other.write("both", record("both", renewed=2.0), await other.read("both"))
    await other.write("second", record("second"), None)
    await js.delete_stream(STREAM)
    one.reconnected()
    other.reconnected()
    older = await one.read("both")
    assert older is not None
    assert older.record.last_renewed == 1.0
    latest = await other.read("both")
    assert latest is not None
    assert latest.record == entry.record
    for copy in pair:
        copy.start()
        await copy.ready.wait()
    await until(lambda: sorted(one.entries()) == sorted(other.entries()) == ["both", "first", "second"])
    await until(lambda: one.entries()["both"] == other.entries()["both"] == latest)


async def test_what_was_removed_from_the_new_bucket_is_not_put_back(
    pair: tuple[Bucket, Bucket], js: JetStreamContext
) -> None:
    one, other = pair
    await one.write("mine", record(), None)
    await other.read("mine")
    await js.delete_stream(STREAM)
    for copy in pair:
        copy.reconnected()
    entry = await one.read("mine")
    assert entry is not None
    await one.remove("mine", entry)
    assert await other.read("mine") is None
    assert not other.entries()


async def test_what_is_written_while_the_first_pass_is_under_way_stays(
    pair: tuple[Bucket, Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = pair
    await one.write("early", record("early"), None)
    watchall = KeyValue.watchall

    async def overtaken(store: KeyValue, **options: Any) -> KeyValue.KeyWatcher:
        watcher = await watchall(store, **options)
        await until(lambda: watcher._init_done)
        await one.write("late", record("late"), None)
        return watcher

    monkeypatch.setattr(KeyValue, "watchall", overtaken)
    one.start()
    await one.ready.wait()
    assert sorted(one.entries()) == ["early", "late"]


async def test_a_removal_leaves_nothing_for_good(
    pair: tuple[Bucket, Bucket], js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "MARKER_TTL", 1)
    one, other = pair
    for copy in pair:
        copy.start()
    entry = await one.write("mine", record(), None)
    await until(lambda: "mine" in other.entries())
    await one.remove("mine", entry)
    assert await stored(js) == 1, "the others have yet to see it"
    await until(lambda: "mine" not in other.entries())
    await emptied(js)
    assert await other.read("mine") is None
    await other.write("mine", record(), None)
    await until(lambda: "mine" in one.entries())


async def test_a_bucket_without_time_to_live_is_tidied_later(
    server: EmbeddedServer, js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "OLD_MARKER", timedelta())
    await js.add_stream(name=STREAM, subjects=["$KV.SIE_POOLS.>"], max_msgs_per_subject=1, allow_rollup_hdrs=True)
    first, second = NatsPools(), NatsPools()
    await first.start(settings(server))
    for name in ("gone", "back"):
        await first.put(spec(name))
        await first.delete(name)
    await first.put(spec("back"))
    await first.put(spec("stays"))
    await first.stop()
    await second.start(settings(server))
    async with asyncio.timeout(20):
        while await stored(js) != 2:  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0.05)
    assert [one.spec.name for one in second.all()] == ["back", "stays"]
    await second.stop()


async def test_what_was_renewed_is_not_removed_and_what_was_removed_is_not_renewed(
    pair: tuple[Bucket, Bucket],
) -> None:
    one, other = pair
    entry = await one.write("mine", record(), None)
    renewed = await other.write("mine", record(renewed=1.0), entry)
    with pytest.raises(Conflict):
        await one.remove("mine", entry)
    await one.remove("mine", renewed)
    with pytest.raises(Conflict):
        await other.write("mine", record(renewed=2.0), renewed)


async def test_a_late_answer_does_not_bring_back_what_was_removed(
    pair: tuple[Bucket, Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    entry = await other.write("mine", record(), None)
    one.start()
    await until(lambda: "mine" in one.entries())
    get, answered, go_on = KeyValue.get, asyncio.Event(), asyncio.Event()

    async def late(store: KeyValue, key: str) -> KeyValue.Entry:
        found = await get(store, key)
        answered.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(KeyValue, "get", late)
    reading = asyncio.create_task(one.read("mine"))
    await answered.wait()
    await other.remove("mine", entry)
    await until(lambda: "mine" not in one.entries())
    go_on.set()
    assert await reading == entry
    assert not one.entries()

"""Payloads and answers too large for a message: what is not wanted any more is deleted, what is wanted has its turn."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from nats.js.errors import NotFoundError

from engines.bus import subjects
from engines.bus.connection import connect
from engines.bus.payloads import SIZE_HEADER, Payloads
from engines.bus.settings import BusSettings
from engines.bus.subjects import PAYLOAD_HEADER, PAYLOADS, REQUEST_HEADER, Lane
from engines.cluster import Cluster
from engines.dispatcher.answer import PendingAnswer
from engines.dispatcher.large import LargeAnswers, Turns
from engines.protocol.cluster import DispatchError, Route, Timeouts
from engines.protocol.events import Completed, Failed
from engines.protocol.work import EncodeWork, Item

from .conftest import MINILM, collect, gateway, generate, until, worker

LANE = Lane("default", "cpu", "default")
SIZE = 9 << 20
MOST = 12 << 20
"""Bytes that the bucket has with one payload of ``SIZE``, but not with two."""
LITTLE = 1 << 20
"""What is deleted leaves a note."""


def encoding(size: int = SIZE) -> EncodeWork:
    return EncodeWork(request_id=uuid.uuid4().hex, model=MINILM, items=[Item(text="x" * size)])


async def stored(cluster: Cluster) -> int:
    """Bytes in the bucket of payloads."""
    client = cluster.dispatcher.client
    assert client is not None
    with contextlib.suppress(NotFoundError):
        return int((await client.jetstream().stream_info(f"OBJ_{PAYLOADS}")).state.bytes)
    return 0


async def has_little(cluster: Cluster, most: int = LITTLE) -> None:
    async with asyncio.timeout(10.0):
        while await stored(cluster) > most:  # noqa: ASYNC110  # the bus has no event for it
            await asyncio.sleep(0.02)


async def test_the_payload_of_work_that_the_queue_refuses_is_deleted(cluster_of):
    async with cluster_of(BusSettings(max_pending=1), FAKE_START_S="600") as cluster:
        first = await cluster.dispatcher.submit(generate("echo:1"), Route(), Timeouts(60.0))
        with pytest.raises(DispatchError) as refused:
            await cluster.dispatcher.submit(encoding(), Route(), Timeouts(60.0))
        assert refused.value.code == "backpressure"
        assert cluster.dispatcher.bus_counts().payload_offloads == 1
        await has_little(cluster)
        await first.aclose()


async def test_the_payload_of_work_that_is_withdrawn_is_deleted(cluster_of):
    async with cluster_of(FAKE_START_S="600") as cluster:
        answer = await cluster.dispatcher.submit(encoding(), Route(), Timeouts(60.0))
        assert await stored(cluster) > SIZE
        await answer.aclose()
        await has_little(cluster)


async def test_work_that_is_published_anew_is_stored_once_and_done(bus):
    async with gateway(bus) as cluster:
        cluster.dispatcher.expect(LANE)
        work = encoding()
        answer = await cluster.dispatcher.submit(work, Route(), Timeouts(60.0))
        flight = cluster.dispatcher._flights[work.request_id]
        assert cluster.dispatcher._rescue._again(flight)
        await until(lambda: cluster.dispatcher.bus_counts().payload_offloads == 2 and flight.sequence is not None)
        await has_little(cluster, MOST)
        assert await stored(cluster) > SIZE
        async with worker(bus):
            assert isinstance((await collect(answer))[-1], Completed)
            await has_little(cluster)


async def test_the_payload_of_work_that_cannot_be_published_anew_is_deleted(bus, monkeypatch):
    async with gateway(bus) as cluster:
        cluster.dispatcher.expect(LANE)
        work = encoding()
        answer = await cluster.dispatcher.submit(work, Route(), Timeouts(60.0))

        async def full(*_: object) -> None:
            raise TimeoutError

        monkeypatch.setattr(cluster.dispatcher._publisher, "_to_lane", full)
        assert cluster.dispatcher._rescue._again(cluster.dispatcher._flights[work.request_id])
        (failed,) = await collect(answer)
        assert isinstance(failed, Failed)
        assert cluster.dispatcher.bus_counts().payload_offloads == 2
        await has_little(cluster)


async def test_a_payload_whose_sender_leaves_while_it_is_stored_is_deleted(bus):
    async with gateway(bus) as cluster:
        client = await connect(bus, "test")
        payloads = Payloads(client, client.jetstream(timeout=5.0), bus)
        await payloads.drop(await payloads.store(b"the bucket is there"))
        storing = asyncio.create_task(payloads.store(bytes(SIZE)))
        async with asyncio.timeout(10.0):
            while await stored(cluster) < LITTLE:  # noqa: ASYNC110  # the bus has no event for it
                await asyncio.sleep(0)
        storing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await storing
        await has_little(cluster)
        await client.close()


async def test_a_large_answer_that_nobody_waits_for_is_deleted(bus):
    async with gateway(bus) as cluster:
        client = await connect(bus, "test")
        payloads = Payloads(client, client.jetstream(timeout=5.0), bus)
        headers = await payloads.store(bytes(SIZE))
        inbox = subjects.reply(cluster.dispatcher.gateway)
        await client.publish(inbox, headers=headers | {REQUEST_HEADER: "nobody"})
        await has_little(cluster)
        assert cluster.dispatcher.bus_counts().inbox_skips == 1
        await client.close()


class Bucket:
    """Remembers what is asked of it; a payload is there once its test says so, by ``come``."""

    def __init__(self) -> None:
        self.fetching: list[str] = []
        self.dropped: list[str] = []
        self._coming: dict[str, asyncio.Future[bytes]] = {}

    async def fetch(self, headers: dict[str, str], _data: bytes) -> bytes:
        name = headers[PAYLOAD_HEADER]
        self.fetching.append(name)
        self._coming[name] = asyncio.get_running_loop().create_future()
        return await self._coming[name]

    async def drop(self, headers: dict[str, str]) -> None:
        self.dropped.append(headers[PAYLOAD_HEADER])

    def come(self, name: str) -> None:
        self._coming[name].set_result(name.encode())


class Desk:
    """Large answers from a ``bucket``. ``fed``: what came of them."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        self.fed: list[bytes] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._answers = LargeAnswers(self.bucket, self.fed.append, self._spawn)  # type: ignore[arg-type]

    def take(self, name: str, size: int) -> PendingAnswer:
        """The end of an answer has come, with this size in MiB."""
        answer = PendingAnswer(name, Timeouts(60.0), lambda *_: None)
        self._answers.take({PAYLOAD_HEADER: name, SIZE_HEADER: str(size << 20)}, answer)
        return answer

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))


async def turn() -> None:
    """Let all that can go on go on."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_no_more_is_fetched_at_a_time_than_fits():
    desk = Desk()
    for name, size in (("a", 100), ("b", 100), ("c", 100), ("huge", 400), ("d", 1)):
        desk.take(name, size)
    await turn()
    assert desk.bucket.fetching == ["a", "b"]
    desk.bucket.come("b")
    await turn()
    assert (desk.bucket.fetching, desk.bucket.dropped) == (["a", "b", "c"], ["b"])
    desk.bucket.come("a")
    await turn()
    assert desk.bucket.fetching == ["a", "b", "c"], "the next is larger than all that may be fetched, so it is alone"
    desk.bucket.come("c")
    await turn()
    assert desk.bucket.fetching == ["a", "b", "c", "huge"]
    desk.bucket.come("huge")
    await turn()
    desk.bucket.come("d")
    await turn()
    assert desk.fed == [b"b", b"a", b"c", b"huge", b"d"]


async def test_an_answer_that_waits_for_its_turn_is_neither_asked_for_nor_lost(monkeypatch):
    monkeypatch.setattr("engines.dispatcher.answer.FIRST_LOOK", 0.0)
    desk = Desk()
    desk.take("first", 200)
    waiting = desk.take("waiting", 200)
    await turn()
    assert desk.bucket.fetching == ["first"]
    waiting.look()
    assert waiting.missed() is None
    waiting.feed(Failed(request_id="waiting", attempt_id="a", code="transport_failure", message="lost"))
    assert not waiting.done
    desk.bucket.come("first")
    await turn()
    assert desk.bucket.fetching == ["first", "waiting"]
    assert waiting.missed() is None
    desk.bucket.come("waiting")
    await turn()
    assert waiting.missed() is not None


async def test_an_answer_whose_caller_leaves_before_its_turn_is_deleted_unread():
    desk = Desk()
    desk.take("first", 200)
    left = desk.take("left", 200)
    await turn()
    await left.aclose()
    desk.bucket.come("first")
    await turn()
    assert (desk.bucket.fetching, desk.bucket.dropped) == (["first"], ["first", "left"])


async def test_whoever_leaves_the_line_holds_up_nobody():
    turns = Turns(10)

    async def having(size: int, done: Callable[[], Awaitable[object]]) -> None:
        async with turns.of(size):
            await done()

    opened = asyncio.Event()
    first = asyncio.create_task(having(8, opened.wait))
    second = asyncio.create_task(having(8, opened.wait))
    third = asyncio.create_task(having(2, turn))
    await turn()
    assert not third.done()
    second.cancel()
    await asyncio.wait([second])
    await third
    opened.set()
    await first

"""Dispatcher, private nats-server and worker process together, with scripted engines."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from engines.bus import subjects, wire
from engines.bus.settings import BusSettings
from engines.protocol.cluster import DispatchError, Route, Timeouts
from engines.protocol.events import Admitted, Completed, Delta, EncodeOutput, Failed
from engines.protocol.work import EncodeWork, Item

from .conftest import MINILM, MODEL, ask, collect, generate, until


async def test_a_stream_arrives_in_order_and_ends_with_usage(cluster_of):
    async with cluster_of() as cluster:
        first, *deltas, last = await ask(cluster, "echo:50")
        assert isinstance(first, Admitted)
        assert first.prompt_tokens == 3
        assert first.queue_ms > 0
        assert "".join(event.text for event in deltas if isinstance(event, Delta)).split() == [
            str(n) for n in range(50)
        ]
        assert isinstance(last, Completed)
        assert last.usage.completion_tokens == 50
        assert last.worker == first.worker
        assert last.bundle_config_hash == cluster.catalog.bundle_config_hash("default")
        assert last.execution_identity == cluster.catalog.execution_identity(cluster.catalog.resolve(MODEL))
        assert cluster.dispatcher.pending == 0


async def test_a_request_before_the_bus_is_up_waits_for_it(unstarted_cluster):
    first = asyncio.create_task(ask(unstarted_cluster, "echo:1"))
    await asyncio.sleep(0)
    await unstarted_cluster.start()
    assert isinstance((await first)[-1], Completed)


async def test_without_a_bus_work_is_refused(unstarted_cluster):
    with pytest.raises(DispatchError) as refused:
        await ask(unstarted_cluster, "echo:1")
    assert (refused.value.code, refused.value.retry_after) == ("queue_unavailable", 5)
    assert not unstarted_cluster.dispatcher.connected


async def test_hundreds_at_once_never_mix_their_answers(cluster_of):
    async with cluster_of() as cluster:
        counts = [1 + n % 17 for n in range(400)]
        answers = await asyncio.gather(*(ask(cluster, f"echo:{count}") for count in counts))
        for count, (first, *deltas, last) in zip(counts, answers, strict=True):
            assert isinstance(first, Admitted)
            assert len(deltas) == count
            assert isinstance(last, Completed)
            assert last.usage.completion_tokens == count
        assert cluster.dispatcher.pending == 0


async def test_work_keeps_coming_past_what_one_request_to_the_queue_asked_for(cluster_of):
    async with cluster_of(FAKE_MAX_INFLIGHT="4") as cluster:
        for _ in range(40):
            answers = await asyncio.gather(*(ask(cluster, "echo:1") for _ in range(8)))
            assert all(isinstance(events[-1], Completed) for events in answers)


@pytest.mark.parametrize("size", [10, 9 << 20, 20 << 20])
async def test_payloads_of_any_size_go_both_ways(cluster_of, size):
    async with cluster_of() as cluster:
        work = EncodeWork(request_id=uuid.uuid4().hex, model=MINILM, items=[Item(text="x" * size), Item(text="end")])
        answer = await cluster.dispatcher.submit(work, Route(), Timeouts(30.0))
        first, last = await collect(answer)
        assert isinstance(first, Admitted)
        assert isinstance(last, Completed)
        assert isinstance(last.output, EncodeOutput)
        assert last.output.dense is not None
        assert last.output.dense.data == b"x" * size + b"end"
        assert cluster.dispatcher.bus_counts().payload_offloads == (size > 8 << 20)


async def test_large_answers_leave_each_other_and_small_ones_alone(cluster_of):
    """Together they are more than a worker lets wait, and the last is more than it keeps."""
    async with cluster_of() as cluster:
        sizes = [37 << 20, 10, 37 << 20, 10, 37 << 20, 10, 70 << 20, 10]

        async def encode(size: int) -> int:
            item = Item(text=f"bytes:{size}")
            work = EncodeWork(request_id=uuid.uuid4().hex, model=MINILM, items=[item])
            last = (await collect(await cluster.dispatcher.submit(work, Route(), Timeouts(120.0))))[-1]
            assert isinstance(last, Completed), last
            assert isinstance(last.output, EncodeOutput)
            return last.output.dense_dims

        assert await asyncio.gather(*map(encode, sizes)) == sizes


async def test_a_refusal_of_the_engine_keeps_its_code_and_details(cluster_of):
    async with cluster_of() as cluster:
        (failed,) = await ask(cluster, "refuse")
        assert isinstance(failed, Failed)
        assert (failed.code, failed.param, failed.details) == ("context_exceeded", "messages", {"prompt_tokens": 9})


@pytest.mark.parametrize(("prompt", "code"), [("crash", "inference_error"), ("silent", "malformed_worker_response")])
async def test_an_engine_that_misbehaves_fails_its_request_and_no_other(cluster_of, prompt, code):
    async with cluster_of() as cluster:
        last = (await ask(cluster, prompt))[-1]
        assert isinstance(last, Failed)
        assert last.code == code
        assert isinstance((await ask(cluster, "echo:2"))[-1], Completed)


async def test_leaving_a_stream_stops_the_engine(cluster_of):
    async with cluster_of() as cluster:
        answer = await cluster.dispatcher.submit(generate("slow:100000"), Route(), Timeouts(600.0))
        async for event in answer:
            if isinstance(event, Delta):
                break
        await until(lambda: [worker.inflight_batches for worker in cluster.dispatcher.workers()] == [1])
        await answer.aclose()
        assert cluster.dispatcher.pending == 0
        await until(lambda: [worker.inflight_batches for worker in cluster.dispatcher.workers()] == [0])


async def test_leaving_a_blocking_request_stops_the_engine(cluster_of):
    async with cluster_of() as cluster:
        answer = await cluster.dispatcher.submit(generate("block:600", stream=False), Route(), Timeouts(600.0))
        await until(lambda: [worker.inflight_batches for worker in cluster.dispatcher.workers()] == [1])
        await answer.aclose()
        await until(lambda: [worker.inflight_batches for worker in cluster.dispatcher.workers()] == [0])


async def test_work_that_nobody_has_taken_leaves_the_queue_with_its_caller(cluster_of):
    async with cluster_of(FAKE_START_S="1.5") as cluster:
        answer = await cluster.dispatcher.submit(generate("vanish"), Route(), Timeouts(600.0))
        await answer.aclose()
        assert isinstance((await ask(cluster, "echo:1"))[-1], Completed)
        assert cluster.worker.starts == 1


async def test_requests_wait_while_the_model_loads(cluster_of):
    async with cluster_of(FAKE_LOAD_S="0.7") as cluster:
        answers = await asyncio.gather(*(ask(cluster, "echo:1") for _ in range(5)))
        assert all(isinstance(events[-1], Completed) for events in answers)
        await until(lambda: cluster.dispatcher.model_status(MODEL).state == "loaded")


async def test_a_load_longer_than_the_deadline_says_so(cluster_of):
    async with cluster_of(FAKE_LOAD_S="600", SIE_LOAD_PATIENCE_S="0") as cluster:
        await until(lambda: bool(cluster.dispatcher.workers()))
        (failed,) = await ask(cluster, "echo:1", overall=3.0)
        assert isinstance(failed, Failed)
        assert (failed.code, failed.retry_after) == ("MODEL_LOADING", 5)
        await until(lambda: cluster.dispatcher.model_status(MODEL).state == "loading")


async def test_a_load_failure_is_reported_with_its_class_and_attempts(cluster_of):
    async with cluster_of(FAKE_LOAD_FAILS="permanent") as cluster:
        for _ in range(2):
            work = EncodeWork(request_id=uuid.uuid4().hex, model=MINILM, items=[Item(text="x")])
            (failed,) = await collect(await cluster.dispatcher.submit(work, Route(), Timeouts(20.0)))
            assert isinstance(failed, Failed)
            assert failed.code == "MODEL_LOAD_FAILED"
            assert failed.details == {"error_class": "FileNotFoundError", "attempts": 1, "permanent": True}
        await until(lambda: cluster.dispatcher.model_status(MINILM).state == "failed")
        assert cluster.dispatcher.model_status(MINILM).last_error == "weights are missing"
        assert isinstance((await ask(cluster, "echo:1"))[-1], Completed)


async def test_the_least_recently_used_model_makes_room(cluster_of):
    async with cluster_of(FAKE_MEMORY_BUDGET="1000") as cluster:
        assert isinstance((await ask(cluster, "echo:1"))[-1], Completed)
        await until(lambda: cluster.dispatcher.model_status(MODEL).state == "loaded")
        work = EncodeWork(request_id=uuid.uuid4().hex, model=MINILM, items=[Item(text="x")])
        await collect(await cluster.dispatcher.submit(work, Route(), Timeouts(20.0)))
        await until(lambda: cluster.dispatcher.model_status(MINILM).state == "loaded")
        assert cluster.dispatcher.model_status(MODEL).state == "available"
        assert isinstance((await ask(cluster, "echo:1"))[-1], Completed)


async def test_a_full_queue_is_backpressure(cluster_of):
    async with cluster_of(BusSettings(max_pending=3), FAKE_START_S="600") as cluster:
        waiting = [await cluster.dispatcher.submit(generate("echo:1"), Route(), Timeouts(60.0)) for _ in range(3)]
        with pytest.raises(DispatchError) as refused:
            await cluster.dispatcher.submit(generate("echo:1"), Route(), Timeouts(60.0))
        assert (refused.value.code, refused.value.retry_after) == ("backpressure", 5)
        assert cluster.dispatcher.pending == 3
        for answer in waiting:
            await answer.aclose()


@pytest.mark.parametrize("route", [Route(pool="nowhere"), Route(machine_profile="h100")])
async def test_no_worker_for_the_route_is_provisioning(cluster_of, route):
    async with cluster_of() as cluster:
        with pytest.raises(DispatchError) as refused:
            await cluster.dispatcher.submit(generate("echo:1"), route, Timeouts(60.0))
        assert (refused.value.code, refused.value.retry_after) == ("provisioning", 60)


async def test_an_answer_that_takes_too_long_ends_with_the_timeout_that_passed(cluster_of):
    async with cluster_of() as cluster:
        for prompt, timeouts, code in [
            ("block:600", Timeouts(0.5), "overall_timeout"),
            ("block:600", Timeouts(60.0, first_chunk=0.5), "first_chunk_timeout"),
            ("stall:600", Timeouts(60.0, first_chunk=30.0, inter_chunk=0.5), "inter_chunk_timeout"),
        ]:
            answer = await cluster.dispatcher.submit(generate(prompt), Route(), timeouts)
            last = (await collect(answer))[-1]
            assert isinstance(last, Failed)
            assert last.code == code
        await until(lambda: [worker.inflight_batches for worker in cluster.dispatcher.workers()] == [0])


async def test_what_nobody_waits_for_and_what_makes_no_sense_is_counted(cluster_of):
    async with cluster_of() as cluster:
        counts = cluster.dispatcher.bus_counts()
        client, inbox = cluster.dispatcher.client, subjects.reply(cluster.dispatcher.gateway)
        stray = Admitted(request_id="nobody", worker="w")
        await client.publish(inbox, wire.pack([wire.encode(stray)]))
        await client.publish(inbox, b"\xc1 rubbish")
        await until(lambda: (counts.inbox_skips, counts.undecodable) == (1, 1))
        assert isinstance((await ask(cluster, "echo:2"))[-1], Completed)
        assert (counts.inbox_skips, counts.undecodable, counts.republished) == (1, 1, 0)

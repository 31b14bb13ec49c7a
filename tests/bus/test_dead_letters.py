"""Work that is given up: its caller hears at once, the operator finds a letter that says why but not what."""

from __future__ import annotations

import json

import pytest

from engines.bus import subjects
from engines.bus.dead_letters import DeadLetter, letter
from engines.bus.settings import BusSettings
from engines.bus.streams import ensure_consumer, ensure_stream
from engines.bus.subjects import Lane
from engines.cluster import Cluster
from engines.protocol.cluster import Route, Timeouts
from engines.protocol.events import Completed, Failed
from handlers.errors import from_failed

from .conftest import MODEL, ask, collect, generate, until

LANE = Lane("default", "cpu", "default")


async def letters(cluster: Cluster) -> list[DeadLetter]:
    """All dead letters on the bus of a cluster."""
    js = cluster.dispatcher.client.jetstream()
    info = await js.stream_info(subjects.DEAD_LETTERS)
    raw = [await js.get_msg(subjects.DEAD_LETTERS, n) for n in range(info.state.first_seq, info.state.last_seq + 1)]
    assert all("secret words" not in str(message.data) for message in raw)
    return [DeadLetter(**json.loads(message.data)) for message in raw]


async def test_work_that_kills_its_workers_ends_with_a_letter_and_a_terminal_error(cluster_of):
    async with cluster_of(BusSettings(ack_wait=1.0, max_deliver=2)) as cluster:
        (failed,) = await ask(cluster, "vanish:secret words", overall=60.0)
        assert isinstance(failed, Failed)
        assert failed.code == "inference_error"
        assert failed.details == {"permanent": True, "attempts": 2}
        told = from_failed(failed)
        assert (told.status, told.terminal) == (500, True)
        await until(lambda: cluster.dispatcher.dead_letters() == {(MODEL, "max_deliveries"): 1})
        (dead,) = await letters(cluster)
        assert (dead.reason, dead.attempts, dead.model, dead.operation) == ("max_deliveries", 2, MODEL, "generate")
        assert dead.request_id == failed.request_id
        assert dead.headers[subjects.ID_HEADER] == failed.request_id
        assert dead.size > 0
        work_left = await cluster.dispatcher.client.jetstream().stream_info(LANE.stream)
        assert work_left.state.messages == 0
        assert isinstance((await ask(cluster, "echo:1"))[-1], Completed)
        assert cluster.worker.starts == 3


async def test_work_that_was_given_up_while_no_worker_is_left_is_told_as_well(cluster_of):
    """The server itself tells of it: nobody has to take the work once more to find out."""
    async with cluster_of(BusSettings(ack_wait=0.5, max_deliver=1), FAKE_START_S="600") as cluster:
        js = cluster.dispatcher.client.jetstream()
        answer = await cluster.dispatcher.submit(generate("secret words"), Route(), Timeouts(60.0))
        await ensure_consumer(js, LANE, BusSettings(ack_wait=0.5, max_deliver=1))
        taker = await js.pull_subscribe_bind(LANE.consumer, stream=LANE.stream)
        await taker.fetch(1)
        (failed,) = await collect(answer)
        assert isinstance(failed, Failed)
        assert failed.details == {"permanent": True, "attempts": 1}


async def test_an_error_that_the_engine_did_not_foresee_leaves_a_letter_with_its_class(cluster_of):
    async with cluster_of() as cluster:
        (failed,) = await ask(cluster, "crash:secret words")
        assert isinstance(failed, Failed)
        await until(lambda: cluster.dispatcher.dead_letters() == {(MODEL, "engine_error"): 1})
        (dead,) = await letters(cluster)
        assert (dead.reason, dead.error_class, dead.attempts) == ("engine_error", "RuntimeError", 1)
        assert dead.worker == cluster.dispatcher.workers()[0].name


async def test_a_refusal_leaves_no_letter(cluster_of):
    async with cluster_of() as cluster:
        await ask(cluster, "refuse")
        assert isinstance((await ask(cluster, "crash"))[-1], Failed)
        await until(lambda: bool(cluster.dispatcher.dead_letters()))
        assert cluster.dispatcher.dead_letters() == {(MODEL, "engine_error"): 1}


async def test_work_that_cannot_be_read_is_told_to_whoever_waits(cluster_of):
    async with cluster_of() as cluster:
        await ask(cluster, "echo:1")
        answer = await cluster.dispatcher.submit(generate("block:600"), Route(), Timeouts(60.0))
        js = cluster.dispatcher.client.jetstream()
        headers = {
            subjects.ID_HEADER: subjects.message_id(answer.request_id, 1),
            subjects.REPLY_HEADER: subjects.reply(cluster.dispatcher.gateway),
        }
        await js.publish(LANE.subject(MODEL), b"\xc1 secret words", headers=headers)
        failed = (await collect(answer))[-1]
        assert isinstance(failed, Failed)
        assert (failed.code, failed.details) == ("malformed_worker_response", {"permanent": True})
        token = subjects.token(MODEL)
        await until(lambda: cluster.dispatcher.dead_letters() == {(token, "decode_error"): 1})
        (dead,) = await letters(cluster)
        assert (dead.reason, dead.error_class, dead.request_id) == ("decode_error", "DecodeError", answer.request_id)


def test_headers_that_may_be_secret_are_not_kept():
    headers = {
        subjects.ID_HEADER: "r/2",
        "Authorization": "Bearer x",
        "X-Api-Key": "y",
        "Cookie": "z",
        "Sie-Payload": "p",
    }
    dead = letter("decode_error", 3, headers, None)
    assert dead.request_id == "r"
    assert dead.headers == {subjects.ID_HEADER: "r/2", "Sie-Payload": "p"}


@pytest.mark.parametrize("deliveries", [1, 3])
async def test_the_consumer_of_a_lane_delivers_as_often_as_the_setting_says(cluster_of, deliveries):
    settings = BusSettings(max_deliver=deliveries)
    async with cluster_of(settings, FAKE_START_S="600") as cluster:
        js = cluster.dispatcher.client.jetstream()
        await ensure_stream(js, LANE, settings)
        await ensure_consumer(js, LANE, settings)
        assert (await js.consumer_info(LANE.stream, LANE.consumer)).config.max_deliver == deliveries

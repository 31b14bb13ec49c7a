"""Time limits travel with the work as seconds from its publication, so that wrong clocks of workers do no harm."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from nats.aio.msg import Msg

from engines.bus import subjects, wire
from engines.bus.clock import ServerClock
from engines.bus.pull import Delivery
from engines.bus.settings import BusSettings
from engines.bus.streams import ensure_stream
from engines.bus.subjects import Lane
from engines.protocol.events import Admitted, Completed
from engines.worker.jobs import Job, Jobs

from .conftest import MODEL, ask, generate, until

LANE = Lane("default", "cpu", "default")


class Skewed:
    """A bus whose clock is an hour ahead."""

    async def request(self, subject: str, **options: float) -> object:
        now = datetime.now(UTC) + timedelta(hours=1)
        stamp = now.isoformat().replace("+00:00", "789Z")  # the server's time has nanoseconds
        return Msg(_client=None, data=json.dumps({"ts": stamp}).encode())


class Silent:
    async def request(self, subject: str, **options: float) -> object:
        raise TimeoutError


async def test_the_servers_time_is_known_whatever_ours_is():
    clock = ServerClock(Skewed())
    assert clock.now() == pytest.approx(time.time(), abs=60.0)
    await clock.estimate("WORK_POOL_default")
    assert clock.now() == pytest.approx(time.time() + 3600.0, abs=60.0)


async def test_without_an_answer_our_own_time_stays():
    clock = ServerClock(Silent())
    await clock.estimate("WORK_POOL_default")
    assert clock.now() == pytest.approx(time.time(), abs=60.0)


def test_a_job_has_what_is_left_of_its_time():
    delivery = Delivery(b"", "", 1, {}, 0.0)
    work = msgspec.structs.replace(generate("x"), time_left=10.0)
    assert Job(work, delivery, age=4.0).time_left == pytest.approx(6.0, abs=3.0)
    assert Job(generate("x"), delivery, age=4.0).time_left is None


def test_a_cancellation_is_of_one_publication_or_of_all():
    jobs = Jobs()
    work = generate("x")
    jobs.cancel([f"{work.request_id}/0"])
    assert jobs.is_cancelled(work)
    assert not jobs.is_cancelled(msgspec.structs.replace(work, attempt=1))
    jobs.cancel([work.request_id])
    assert jobs.is_cancelled(msgspec.structs.replace(work, attempt=1))


@pytest.mark.parametrize("ahead", ["3600", "-3600"])
async def test_a_worker_whose_clock_is_wrong_drops_what_is_late_and_does_what_is_not(cluster_of, ahead):
    settings = BusSettings(ack_wait=1.0)
    async with cluster_of(settings, FAKE_START_S="1", FAKE_CLOCK_AHEAD_S=ahead) as cluster:
        js = cluster.dispatcher.client.jetstream()
        await ensure_stream(js, LANE, settings)
        late = msgspec.structs.replace(generate("vanish"), time_left=0.2, reply_subject="sie.reply.nobody")
        await js.publish(LANE.subject(MODEL), wire.encode(late), headers={subjects.ID_HEADER: late.request_id})
        events = await ask(cluster, "echo:1")
        assert isinstance(events[0], Admitted)
        assert 0.0 < events[0].queue_ms < 60_000.0
        assert isinstance(events[-1], Completed)
        assert cluster.worker.starts == 1


async def test_work_whose_gateway_has_gone_ends_on_its_worker_when_its_time_is_over(cluster_of):
    async with cluster_of(BusSettings(ack_wait=0.3)) as cluster:
        assert isinstance((await ask(cluster, "echo:1"))[-1], Completed)
        js = cluster.dispatcher.client.jetstream()
        orphan = msgspec.structs.replace(generate("block:600"), time_left=3.0, reply_subject="sie.reply.nobody")
        await js.publish(LANE.subject(MODEL), wire.encode(orphan), headers={subjects.ID_HEADER: orphan.request_id})
        for busy in (1, 0):
            await until(lambda busy=busy: [w.inflight_batches for w in cluster.dispatcher.workers()] == [busy])

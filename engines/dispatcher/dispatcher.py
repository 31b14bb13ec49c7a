"""Submitting work to the queue of a pool and routing the workers' events to whoever waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import Any

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from engines.bus import subjects, wire
from engines.bus.connection import connect
from engines.bus.payloads import Payloads
from engines.bus.settings import BusSettings
from engines.bus.streams import ensure_stream
from engines.bus.subjects import Lane
from engines.protocol.cluster import (
    DispatchError,
    ModelStatus,
    PendingGenerations,
    Route,
    Timeouts,
    Traffic,
    WorkerStatus,
)
from engines.protocol.events import Admitted
from engines.protocol.work import GenerateWork, Work

from .answer import PendingAnswer
from .registry import Registry

log = logging.getLogger("sie.dispatcher")

PUBLISH_TIMEOUT = 5.0
SWEEP_EVERY = 0.5
CHECK_TRIES = 20
CONNECT_PATIENCE = 2.0
STREAM_FULL = frozenset({10077, 10047, 10023, 10028})
"""JetStream error codes: limit of the stream, of its memory, of the account."""

_status = msgspec.msgpack.Decoder(WorkerStatus)
_goodbye = msgspec.msgpack.Decoder(tuple[str, str])


class NatsDispatcher:
    """``Dispatcher`` and ``ClusterView`` of one gateway. Usable before ``start``: work is refused until then."""

    def __init__(self, *, load_patience: float = 0.0) -> None:
        """``load_patience``: seconds that work may wait for its model to load, beside its own limits."""
        self._load_patience = load_patience
        self.gateway = secrets.token_hex(6)
        self._settings = BusSettings()
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._payloads: Payloads | None = None
        self._registry = Registry(self._worker_lost)
        self._pending: dict[str, PendingAnswer] = {}
        self._lanes: dict[str, Lane] = {}
        self._generations: dict[str, tuple[str, str, str]] = {}
        self._streams: dict[str, datetime | None] = {}
        self._expected: set[Lane] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._up = asyncio.Event()
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, settings: BusSettings) -> None:
        """Connect and subscribe; returns once the bus is there."""
        self._settings = settings
        client = await connect(
            settings, f"gateway-{self.gateway}", on_reconnect=self._on_reconnect, on_disconnect=self._on_disconnect
        )
        self._client = client
        self._js = client.jetstream(timeout=PUBLISH_TIMEOUT)
        self._payloads = Payloads(client, self._js, settings)
        await client.subscribe(
            subjects.reply(self.gateway), cb=self._on_events, pending_msgs_limit=0, pending_bytes_limit=0
        )
        await client.subscribe(f"{subjects.HEALTH}.*", cb=self._on_heartbeat)
        await client.subscribe(f"{subjects.GOODBYE}.*", cb=self._on_goodbye)
        await client.publish(subjects.HELLO)
        self._sweeper = asyncio.create_task(self._sweep(), name="worker-sweep")
        self._up.set()

    async def stop(self) -> None:
        """Fail what is still open and leave the bus."""
        for answer in list(self._pending.values()):
            answer.fail("transport_failure", "the gateway is shutting down")
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in list(self._tasks):
            with contextlib.suppress(Exception):
                async with asyncio.timeout(1.0):
                    await task
        if self._client is not None:
            with contextlib.suppress(Exception):  # leaving a bus that is already gone
                async with asyncio.timeout(2.0):
                    await self._client.close()
        self._client = None

    def expect(self, lane: Lane) -> None:
        """A worker of ``lane`` is being started or restarted: work for it may wait in the queue."""
        self._expected.add(lane)

    def unexpect(self, lane: Lane) -> None:
        self._expected.discard(lane)

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> PendingAnswer:
        """See ``engines.protocol.cluster.Dispatcher``."""
        js = await self._connection()
        lane = self._lane(work, route)
        now = time.time()
        patience = 0.0 if self.model_status(_name(work)).state == "loaded" else self._load_patience
        work = msgspec.structs.replace(
            work,
            pool=lane.pool,
            reply_subject=subjects.reply(self.gateway),
            published_at=now,
            deadline=work.deadline or now + timeouts.overall + patience,
        )
        if work.request_id in self._pending:
            raise ValueError(f"request id {work.request_id} is already in use")
        answer = PendingAnswer(work.request_id, timeouts, self._answer_ended, patience)
        self._pending[work.request_id] = answer
        self._lanes[work.request_id] = lane
        if isinstance(work, GenerateWork):
            self._generations[work.request_id] = (work.model, work.profile, lane.pool)
        try:
            started = time.perf_counter()
            await self._publish(js, lane, work, answer)
            answer.publish_ms = (time.perf_counter() - started) * 1000.0
        except BaseException:
            await answer.aclose()
            raise
        return answer

    @property
    def connected(self) -> bool:
        return self._client is not None and self._client.is_connected

    @property
    def client(self) -> Client | None:
        """The connection to the bus, between ``start`` and ``stop``."""
        return self._client

    @property
    def pending(self) -> int:
        """How many requests of this gateway are open."""
        return len(self._pending)

    def open_lanes(self) -> Counter[Lane]:
        """How many requests of this gateway are open, by the lane that has them."""
        return Counter(self._lanes.values())

    def workers(self) -> Sequence[WorkerStatus]:
        return self._registry.workers()

    def model_status(self, name: str) -> ModelStatus:
        return self._registry.model_status(name)

    def traffic(self) -> Traffic:
        return self._registry.traffic()

    def pending_generations(self) -> Sequence[PendingGenerations]:
        groups: dict[tuple[str, str, str], PendingGenerations] = {}
        for request_id, key in self._generations.items():
            model, profile, pool = key
            answer = self._pending[request_id]
            group = groups.setdefault(key, PendingGenerations(model=model, profile=profile, pool=pool))
            group.count += 1
            group.active_streams += answer.begun
            group.waiting_first_chunk += not answer.begun
            group.republished += answer.attempts > 1
            group.oldest_ms = max(group.oldest_ms, int(answer.age * 1000.0))
        return [groups[key] for key in sorted(groups)]

    def goodbye(self, worker: str, reason: str) -> None:
        """What a supervisor knows at once: its worker has died."""
        self._registry.goodbye(worker, reason)

    async def _connection(self) -> JetStreamContext:
        """The queue, once the bus is there: a start or a short interruption is waited for."""
        if not self.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CONNECT_PATIENCE):
                    await self._up.wait()
        if self._js is None or not self.connected:
            raise DispatchError("queue_unavailable", "the message bus is not connected", retry_after=5)
        return self._js

    def _lane(self, work: Work, route: Route) -> Lane:
        lane = self._registry.lane(route, work.bundle, _name(work))
        if lane is not None:
            return lane
        for lane in self._expected:
            if (lane.pool, lane.bundle) == (route.pool, work.bundle) and route.allows(lane.machine_profile):
                return lane
        where = f"pool {route.pool!r}, bundle {work.bundle!r}"
        if profile := route.machine_profile or " or ".join(route.machine_profiles):
            where += f", machine profile {profile!r}"
        raise DispatchError("provisioning", f"no worker is running yet for {where}", retry_after=60)

    async def _publish(self, js: JetStreamContext, lane: Lane, work: Work, answer: PendingAnswer) -> None:
        assert self._payloads is not None
        data = wire.encode(work)
        headers = {"Nats-Msg-Id": work.request_id}
        try:
            if len(data) > self._payloads.limit:
                headers |= await self._payloads.store(data)
                data = b""
            if lane.stream not in self._streams:
                self._streams[lane.stream] = await ensure_stream(js, lane, self._settings)
            try:
                receipt = await js.publish(lane.subject(work.model), data, headers=headers)
            except NoStreamResponseError:
                # a bus with memory streams came back empty
                self._streams[lane.stream] = await ensure_stream(js, lane, self._settings)
                receipt = await js.publish(lane.subject(work.model), data, headers=headers)
            answer.sequence = receipt.seq
        except APIError as error:
            if error.err_code in STREAM_FULL:
                raise DispatchError("backpressure", "the work queue is full", retry_after=5) from error
            raise DispatchError("queue_unavailable", f"the work queue refused: {error.description}", 5) from error
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise DispatchError("queue_unavailable", "the message bus does not answer", retry_after=5) from error

    def _answer_ended(self, answer: PendingAnswer, running: bool) -> None:
        self._pending.pop(answer.request_id, None)
        lane = self._lanes.pop(answer.request_id, None)
        self._generations.pop(answer.request_id, None)
        if running and lane is not None:
            self._spawn(self._cancel(answer, lane))

    async def _cancel(self, answer: PendingAnswer, lane: Lane) -> None:
        """Tell the workers, and take the message back in case none has it."""
        client, js = self._client, self._js
        if client is None or js is None:
            return
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            await client.publish(subjects.CANCEL, wire.encode([answer.request_id]))
        if answer.sequence is not None and not answer.begun:
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                await js.delete_msg(lane.stream, answer.sequence)

    async def _on_events(self, message: Msg) -> None:
        if message.headers and subjects.PAYLOAD_HEADER in message.headers:
            self._spawn(self._fetch_events(dict(message.headers)))
        else:
            self._feed(message.data)

    async def _fetch_events(self, headers: dict[str, str]) -> None:
        assert self._payloads is not None
        # only the last event of a request is ever that large, so nothing of that request can overtake it
        self._feed(await self._payloads.fetch(headers, b""))
        await self._payloads.drop(headers)

    def _feed(self, data: bytes) -> None:
        try:
            events = wire.decode_events(data)
        except msgspec.DecodeError as error:
            # the ids are unreadable too; whoever waits sees a gap or a timeout
            log.error("a worker's message cannot be decoded: %s", error)
            return
        for event in events:
            answer = self._pending.get(event.request_id)
            if answer is not None:
                answer.feed(event)
            elif isinstance(event, Admitted) and self._client is not None:
                # work that nobody waits for any more, for instance delivered anew after its answer
                self._spawn(self._client.publish(subjects.CANCEL, wire.encode([event.request_id])))

    async def _on_heartbeat(self, message: Msg) -> None:
        try:
            self._registry.beat(_status.decode(message.data))
        except msgspec.DecodeError as error:
            log.error("a heart-beat on %s cannot be decoded: %s", message.subject, error)

    async def _on_goodbye(self, message: Msg) -> None:
        with contextlib.suppress(msgspec.DecodeError):
            self._registry.goodbye(*_goodbye.decode(message.data))

    async def _on_disconnect(self) -> None:
        self._up.clear()

    async def _on_reconnect(self) -> None:
        self._up.set()
        self._spawn(self._find_lost_streams())

    async def _find_lost_streams(self) -> None:
        """A bus whose memory streams went with it has lost the work in them: say so at once, callers can retry."""
        js = self._js
        assert js is not None
        for stream, created in list(self._streams.items()):
            if await _created(js, stream) == created:
                continue
            self._streams.pop(stream, None)
            for answer in list(self._pending.values()):
                if not answer.begun and self._lanes[answer.request_id].stream == stream:
                    answer.fail("transport_failure", "the message bus was restarted and lost the request")

    def _worker_lost(self, name: str, reason: str) -> None:
        log.warning("worker %s %s", name, reason)
        for answer in list(self._pending.values()):
            answer.lose_worker(name, reason)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY)
            self._registry.sweep()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("dispatcher: %s: %s", type(error).__name__, error)


def _name(work: Work) -> str:
    """The model as heart-beats name it."""
    return work.model if work.profile == "default" else f"{work.model}:{work.profile}"


async def _created(js: JetStreamContext, stream: str) -> datetime | None:
    """When a stream was created, ``None`` if it is not there; waits for a bus that is still coming up."""
    for _ in range(CHECK_TRIES):
        try:
            created: datetime | None = (await js.stream_info(stream)).created
            return created
        except NotFoundError:
            return None
        except (nats.errors.Error, TimeoutError, OSError):
            await asyncio.sleep(0.2)
    return None

"""Submitting work to the workers and routing their events to whoever waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from engines.bus import subjects, wire
from engines.bus.connection import connect
from engines.bus.payloads import Payloads
from engines.bus.settings import BusSettings
from engines.bus.subjects import Lane
from engines.protocol.cluster import (
    BusCounts,
    DispatchError,
    ModelStatus,
    PendingGenerations,
    Route,
    Timeouts,
    Traffic,
    WorkerStatus,
)
from engines.protocol.events import Admitted, Refused
from engines.protocol.work import Work

from . import chase
from .answer import PendingAnswer
from .flight import Flight, name_of
from .given_up import GivenUp
from .large import LargeAnswers
from .publisher import Publisher
from .registry import Registry
from .rescue import Rescue
from .routing import Place

log = logging.getLogger("sie.dispatcher")

API_TIMEOUT = 5.0
BEAT_PATIENCE = 1.5
"""Seconds after joining the bus in which the first heart-beat of a fitting worker is waited for."""
SWEEP_EVERY = 0.5
CONNECT_PATIENCE = 2.0
RESULT_BYTES = 256 << 20
"""Bytes of results that may wait for this process; beyond that they are dropped, and their requests fail on the gap."""

_status = msgspec.msgpack.Decoder(WorkerStatus)
_goodbye = msgspec.msgpack.Decoder(tuple[str, str])


class NatsDispatcher:
    """``Dispatcher`` and ``ClusterView`` of one gateway. Usable before ``start``: work is refused until then."""

    def __init__(self, *, load_patience: float = 0.0) -> None:
        """``load_patience``: seconds that work may wait for its model to load, beside its own limits."""
        self._load_patience = load_patience
        self.gateway = secrets.token_hex(6)
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._large: LargeAnswers | None = None
        self._publisher: Publisher | None = None
        self._given_up: GivenUp | None = None
        self._registry = Registry(self._worker_lost)
        self._flights: dict[str, Flight] = {}
        self._rescue = Rescue(self._flights, self._registry, self._spawn)
        self._expected: set[Lane] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._up = asyncio.Event()
        self._joined = 0.0
        self._sweeper: asyncio.Task[None] | None = None
        self._chaser: asyncio.Task[None] | None = None
        self._chase = asyncio.Event()

    async def start(self, settings: BusSettings) -> None:
        """Connect and subscribe; returns once the bus is there."""
        reply = subjects.reply(self.gateway)
        client = await connect(
            settings, f"gateway-{self.gateway}", on_reconnect=self._on_reconnect, on_disconnect=self._on_disconnect
        )
        self._client = client
        self._js = js = client.jetstream(timeout=API_TIMEOUT)
        payloads = Payloads(client, js, settings)
        self._large = LargeAnswers(payloads, self._feed, self._spawn)
        self._publisher = Publisher(js, payloads, settings, reply)
        self._given_up = GivenUp(client, js, payloads, settings)
        self._rescue.connected(client, js, self._publisher)
        await client.subscribe(reply, cb=self._on_events, pending_msgs_limit=0, pending_bytes_limit=RESULT_BYTES)
        await client.subscribe(f"{subjects.HEALTH}.*", cb=self._on_heartbeat)
        await client.subscribe(f"{subjects.GOODBYE}.*", cb=self._on_goodbye)
        await self._given_up.start()
        await client.publish(subjects.HELLO)
        self._sweeper = asyncio.create_task(self._sweep(), name="worker-sweep")
        self._chaser = asyncio.create_task(chase.run(client, self._flights, self._chase), name="missed-events")
        self._joined = time.monotonic()
        self._up.set()

    async def stop(self) -> None:
        """Fail what is still open and leave the bus."""
        self.give_up()
        for background in (self._sweeper, self._chaser):
            if background is not None:
                background.cancel()
        for task in list(self._tasks):
            with contextlib.suppress(Exception):
                async with asyncio.timeout(1.0):
                    await task
        if self._client is not None:
            with contextlib.suppress(Exception):  # leaving a bus that is already gone
                async with asyncio.timeout(2.0):
                    await self._client.close()
        self._client = None

    def give_up(self) -> None:
        """Fail what is still open."""
        for flight in list(self._flights.values()):
            flight.answer.fail("transport_failure", "the gateway is shutting down", retry_after=1)

    def expect(self, lane: Lane) -> None:
        """A worker of ``lane`` is being started or restarted: work for it may wait in the queue."""
        self._expected.add(lane)

    def unexpect(self, lane: Lane) -> None:
        self._expected.discard(lane)

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> PendingAnswer:
        """See ``engines.protocol.cluster.Dispatcher``."""
        publisher = await self._connection()
        place = await self._place(work, route)
        if work.request_id in self._flights:
            raise ValueError(f"request id {work.request_id} is already in use")
        name = name_of(work)
        patience = self._patience_for(name)
        work = msgspec.structs.replace(work, load_patience=self._load_patience - patience)
        answer = PendingAnswer(
            work.request_id,
            timeouts,
            self._answer_ended,
            patience,
            self._rescue.late,
            lambda _: self._patience_for(name),
        )
        flight = self._flights[work.request_id] = Flight(work, route, place, answer)
        try:
            await publisher.publish(flight)
        except BaseException:
            await answer.aclose()
            raise
        if flight.worker is not None:
            self._registry.sent(flight.worker)
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
        return len(self._flights)

    def open_lanes(self) -> Counter[Lane]:
        """How many requests of this gateway are open, by the lane that has them."""
        return Counter(flight.lane for flight in self._flights.values())

    def workers(self) -> Sequence[WorkerStatus]:
        return self._registry.workers()

    def model_status(self, name: str) -> ModelStatus:
        return self._registry.model_status(name)

    def traffic(self) -> Traffic:
        return self._registry.traffic()

    def bus_counts(self) -> BusCounts:
        return BusCounts() if self._publisher is None else self._publisher.counts

    def dead_letters(self) -> Mapping[tuple[str, str], int]:
        return {} if self._given_up is None else self._given_up.counts

    def pending_generations(self) -> Sequence[PendingGenerations]:
        groups: dict[tuple[str, str, str], PendingGenerations] = {}
        for flight in self._flights.values():
            key, answer = flight.group, flight.answer
            if key is None:
                continue
            model, profile, pool = key
            group = groups.setdefault(key, PendingGenerations(model=model, profile=profile, pool=pool))
            group.count += 1
            group.active_streams += answer.begun
            group.waiting_first_chunk += not answer.begun
            group.republished += answer.attempts > 1 or answer.attempt > 0
            group.oldest_ms = max(group.oldest_ms, int(answer.age * 1000.0))
        return [groups[key] for key in sorted(groups)]

    def goodbye(self, worker: str, reason: str) -> None:
        """What a supervisor knows at once: its worker has died."""
        self._registry.goodbye(worker, reason)

    async def _connection(self) -> Publisher:
        """The queue, once the bus is there: a start or a short interruption is waited for."""
        if not self.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CONNECT_PATIENCE):
                    await self._up.wait()
        if self._publisher is None or not self.connected:
            raise DispatchError("queue_unavailable", "the message bus is not connected", retry_after=5)
        return self._publisher

    async def _place(self, work: Work, route: Route) -> Place:
        while True:
            place = self._registry.place(route, work.bundle, name_of(work), work.routing_key)
            if place is not None:
                return place
            for lane in self._expected:
                if (lane.pool, lane.bundle) == (route.pool, work.bundle) and route.allows(lane.machine_profile):
                    return Place(lane)
            if time.monotonic() > self._joined + BEAT_PATIENCE:
                break
            await asyncio.sleep(0.02)
        where = f"pool {route.pool!r}, bundle {work.bundle!r}"
        if profile := route.machine_profile or " or ".join(route.machine_profiles):
            where += f", machine profile {profile!r}"
        raise DispatchError("provisioning", f"no worker is running yet for {where}", retry_after=60)

    def _patience_for(self, model: str) -> float:
        """How many seconds more work may take, because no worker has its model loaded."""
        return 0.0 if self.model_status(model).state == "loaded" else self._load_patience

    def _answer_ended(self, answer: PendingAnswer, running: bool) -> None:
        flight = self._flights.pop(answer.request_id, None)
        if running and flight is not None:
            self._spawn(self._rescue.cancel(flight))

    async def _on_events(self, message: Msg) -> None:
        headers = dict(message.headers or {})
        if subjects.PAYLOAD_HEADER not in headers:
            self._feed(message.data)
            return
        assert self._large is not None
        flight = self._flights.get(headers.get(subjects.REQUEST_HEADER, ""))
        if flight is None:
            self.bus_counts().inbox_skips += 1
        self._large.take(headers, None if flight is None else flight.answer)

    def _feed(self, data: bytes) -> None:
        try:
            events = wire.decode_events(data)
        except msgspec.DecodeError as error:
            # the ids are unreadable too; whoever waits sees a gap or a timeout
            self.bus_counts().undecodable += 1
            log.error("a worker's message cannot be decoded: %s", error)
            return
        for event in events:
            flight = self._flights.get(event.request_id)
            if isinstance(event, Refused):
                if flight is not None:
                    self._rescue.refused(flight, event)
            elif flight is not None:
                flight.answer.feed(event)
                if flight.answer.incomplete:
                    self._chase.set()
            else:
                self.bus_counts().inbox_skips += 1
                if isinstance(event, Admitted) and self._client is not None:
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
        self._registry.resume()
        self._joined = time.monotonic()
        self._up.set()
        for flight in self._flights.values():
            flight.answer.look()
        self._chase.set()
        if self._client is not None:
            await self._client.publish(subjects.HELLO)
        self._spawn(self._rescue.find_lost_streams())

    def _worker_lost(self, name: str, reason: str) -> None:
        log.warning("worker %s %s", name, reason)
        self._rescue.worker_lost(name, reason)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY)
            if self.connected:
                self._registry.sweep()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("dispatcher: %s: %s", type(error).__name__, error)

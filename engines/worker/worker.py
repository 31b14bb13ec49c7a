"""The worker itself: takes deliveries, runs one task per request, acks when the answer is on its way."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from engines.bus import subjects, wire
from engines.bus.connection import connect
from engines.bus.payloads import NOT_FETCHED, Payloads
from engines.bus.pull import Delivery
from engines.bus.settings import BusSettings
from engines.bus.subjects import Lane
from engines.bus.tasks import ended
from engines.catalog import Catalog
from engines.protocol import tracing
from engines.protocol.cluster import WorkerStatus
from engines.protocol.events import Completed, Delta, Failed, RefusalReason, Refused, WireEvent
from engines.protocol.work import GenerateWork, Work

from . import machine
from .admission import Admission
from .execution import Execution
from .intake import Intake
from .jobs import Job, Jobs
from .keeper import Keeper
from .letters import Letters
from .models import Factory, Models
from .options import WorkerOptions
from .outbox import ACK, LATER, NAK, PROGRESS, Outbox
from .pulse import Pulse
from .reply import AttemptReply, attempt_id
from .signs import State

log = logging.getLogger("sie.worker")

CANCEL_PATIENCE = 5.0
LAST = (Completed, Failed)
FORCED_PATIENCE = 0.5


class Worker:
    """Serves one lane until told to stop."""

    def __init__(self, options: WorkerOptions, bus: BusSettings, catalog: Catalog, factory: Factory) -> None:
        self.lane = Lane(options.pool, options.machine_profile, options.bundle)
        self._options = options
        self._bus = bus
        self._catalog = catalog
        self._models = Models(factory, self._changed, options.memory_budget)
        self._jobs = Jobs()
        self._opening: dict[str, Delivery] = {}
        """Deliveries whose work is still being fetched, by where they are acknowledged."""
        self._admission = Admission(options.max_inflight, options.kv_budget, self._models.cache_tokens)
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._preloaded = False
        self._hash = catalog.bundle_config_hash(options.bundle)
        itself = WorkerStatus(
            name=options.name,
            pool=options.pool,
            machine_profile=options.machine_profile,
            bundle=options.bundle,
        )
        self._keeper = Keeper(catalog, self._models, itself, self._catalog_changed)
        self._tracing = tracing.from_env("oasgate-worker")
        self._execution = Execution(catalog, self._models, options.name, lambda: self._hash, self._tracing)
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests = 0
        self._tokens = 0
        self._refusals: Counter[str] = Counter()

    def stop(self) -> None:
        """First call: drain. Second call: cancel what still runs."""
        if self._stop.is_set():
            self._force.set()
        self._stop.set()

    def state(self) -> State:
        """What probes are told. It is ready when the models that it loads at its start are, or cannot be."""
        if self._stop.is_set():
            return "draining"
        return "ready" if self._preloaded else "starting"

    async def run(self) -> None:
        """Connect, serve, drain, leave."""
        name = self._options.name
        joining = asyncio.create_task(connect(self._bus, f"worker-{name}", on_reconnect=self._reconnected))
        await self._unless_stopped(joining)
        if not joining.done():
            await ended(joining)
            return
        self._client: Client = joining.result()
        js = self._client.jetstream(timeout=5.0)
        self._payloads = Payloads(self._client, js, self._bus)
        self._outbox = Outbox(self._client, self._payloads)
        self._letters = Letters(js, self._bus, self._outbox, name)
        self._pulse = Pulse(self._client, name, self.status)
        self._intake = Intake(self._client, js, self._bus, self.lane, name, self._take, self._room, self._opening_own)
        await self._client.subscribe(subjects.CANCEL, cb=self._on_cancel)
        await self._client.subscribe(subjects.cancel_one(name), cb=self._on_cancel)
        await self._client.subscribe(subjects.HELLO, cb=self._on_hello)
        for subject in (subjects.AGAIN, subjects.again(name)):
            await self._client.subscribe(subject, cb=self._on_again)
        starting = asyncio.create_task(self._intake.start())
        await self._unless_stopped(starting)
        if not starting.done():
            await ended(starting)
            await self._leave()
            return
        starting.result()
        background = [
            asyncio.create_task(task, name=title)
            for title, task in (
                ("heartbeat", self._pulse.run()),
                ("progress", self._progress()),
                ("preload", self._preload()),
                ("keeper", self._keeper.run(self._client, self._bus)),
            )
        ]
        log.info("worker %s: serving %s", name, "/".join(self.lane))
        try:
            await self._stop.wait()
            await self._drain()
        finally:
            await ended(*background)
            await self._leave()

    async def _unless_stopped(self, task: asyncio.Task[Any]) -> None:
        """Wait for a task or for the end, whichever is first: a bus that is down must not keep the process."""
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()

    def _room(self) -> int:
        return 0 if self._stop.is_set() or self._outbox.full else self._admission.room(len(self._opening))

    def _opening_own(self) -> int:
        return sum(delivery.direct for delivery in self._opening.values())

    def _take(self, delivery: Delivery) -> None:
        self._opening[delivery.ack] = delivery
        self._spawn(self._open(delivery), "open")

    async def _open(self, delivery: Delivery) -> None:
        """Fetch the work of a delivery and start on it."""
        try:
            if not delivery.direct:
                await self._outbox.room()  # it was asked for before so much waited
            began = time.perf_counter()
            work = wire.decode_work(await self._payloads.fetch(delivery.headers, delivery.data))
        except msgspec.DecodeError as error:
            await self._letters.unreadable(delivery, error)
        except NOT_FETCHED as error:
            self._letters.not_fetched(delivery, error, self._jobs)
        else:
            await self._start(work, delivery, (time.perf_counter() - began) * 1e3)
        finally:
            self._opening.pop(delivery.ack, None)
            self._intake.poke()  # it may have ended without a job

    async def _start(self, work: Work, delivery: Delivery, fetch_ms: float) -> None:
        """Begin a request, unless it is settled already or better done elsewhere."""
        age = self._intake.age(delivery)
        running = self._jobs.get(work.request_id)
        if running is not None:
            self._again(running, work, delivery)
        elif self._jobs.is_cancelled(work) or self._is_late(work, age):
            self._outbox.settle(delivery.ack, ACK)
            await self._payloads.drop(delivery.headers)
        elif (reason := self._refusal(work, delivery)) is not None:
            self._refuse(work, delivery, reason)
        elif self._stop.is_set():
            self._outbox.settle(delivery.ack, NAK)
        else:
            fetched = subjects.PAYLOAD_HEADER in delivery.headers
            job = Job(work, delivery, age, fetch_ms if fetched else 0.0)
            self._jobs.add(job)
            self._admission.begin(work)
            job.task = self._spawn(self._work(job, delivery), f"request {work.request_id}")

    def _is_late(self, work: Work, age: float) -> bool:
        """Whether an answer would come too late to be of use."""
        more = 0.0 if self._execution.has_loaded(work) else work.load_patience
        return bool(work.time_left) and age > work.time_left + more

    def _again(self, running: Job, work: Work, delivery: Delivery) -> None:
        """The same request came while it is at work."""
        if work.attempt > running.work.attempt:
            # published anew, so nobody hears the old attempt: the new one begins when that has ended
            running.end("cancel")
            self._outbox.settle(delivery.ack, LATER)
        elif work.attempt < running.work.attempt or running.delivery is None:
            self._outbox.settle(delivery.ack, ACK)
        else:
            # our sign of life came late, and the queue delivered the same work anew
            running.delivery = delivery

    def _refusal(self, work: Work, delivery: Delivery) -> RefusalReason | None:
        """Why the work is better done elsewhere (contract N.4)."""
        if not self._admission.fits(work, direct=delivery.direct) or (delivery.direct and self._outbox.full):
            return "kv_budget"
        if not delivery.direct:
            return None
        if self._stop.is_set():
            return "worker_shutting_down"
        return None if self._execution.has_loaded(work) else "model_not_loaded"

    def _refuse(self, work: Work, delivery: Delivery, reason: RefusalReason) -> None:
        self._refusals[reason] += 1
        attempt = attempt_id(work.attempt)
        refused = Refused(request_id=work.request_id, attempt_id=attempt, reason=reason, worker=self._options.name)
        self._outbox.event(work.reply_subject, refused)
        self._outbox.settle(delivery.ack, ACK)
        self._pulse.beat()

    async def _work(self, job: Job, delivery: Delivery) -> None:
        work = job.work

        def begun() -> None:
            # a stream that has begun is never tried anew
            if isinstance(work, GenerateWork) and work.stream:
                self._settle(job, ACK)

        attempt = attempt_id(work.attempt)
        reply = AttemptReply(work, attempt, self._options.name, self._send, begun, age=job.age)
        reply.payload_fetch_ms = job.fetch_ms
        verdict = ACK
        error_class: str | None = None
        try:
            job.begin()
            error_class = await self._execution.run(job, reply)
            await self._outbox.over(attempt)
        except asyncio.CancelledError:
            if job.ending == "drain" and not reply.begun:
                verdict = self._hand_back(job)
            elif job.ending == "drain":
                reply.failed("transport_failure", "the worker is shutting down", retry_after=1)
            elif job.ending == "deadline":
                reply.failed("overall_timeout", "the request's time ran out on the worker")
            else:
                reply.failed("cancelled", "the request was cancelled")
        finally:
            self._jobs.remove(job)
            self._admission.end(work.request_id)
            self._settle(job, verdict)
            self._intake.poke()
        if error_class is not None:
            await self._letters.engine_error(delivery, work, error_class)
        if verdict is ACK:
            await self._payloads.drop(delivery.headers)

    def _hand_back(self, job: Job) -> bytes:
        """Work that was not begun goes back to its queue; from our own queue nobody else could take it."""
        delivery = job.delivery
        if delivery is None or not delivery.direct:
            return NAK
        self._refuse(job.work, delivery, "worker_shutting_down")
        job.delivery = None
        return ACK

    def _send(self, subject: str, event: WireEvent) -> None:
        """Count what goes out; heart-beats tell it."""
        if isinstance(event, Delta):
            self._tokens += event.tokens
        elif isinstance(event, LAST):
            self._requests += isinstance(event, Completed)
        self._outbox.event(subject, event)

    def _settle(self, job: Job, verdict: bytes) -> None:
        if job.delivery is not None:
            self._outbox.settle(job.delivery.ack, verdict)
            job.delivery = None

    async def _on_cancel(self, message: Msg) -> None:
        self._jobs.cancel(msgspec.msgpack.decode(message.data, type=list[str]))

    async def _on_again(self, message: Msg) -> None:
        for missed in wire.decode_missed(message.data):
            self._outbox.again(missed)

    async def _on_hello(self, _message: Msg) -> None:
        self._pulse.beat()

    def _catalog_changed(self) -> None:
        self._hash = self._catalog.bundle_config_hash(self._options.bundle)
        self._pulse.beat()

    def _changed(self) -> None:
        self._pulse.beat()

    def status(self, used: int, total: int) -> WorkerStatus:
        """What the next heart-beat says; memory in bytes."""
        engines = self._models.load_of_engines()
        own = {"event_loop_lag_seconds": self._pulse.lag, "jobs": float(len(self._jobs))}
        own |= self._outbox.counts
        own |= {f"refused_{reason}_total": float(count) for reason, count in self._refusals.items()}
        return WorkerStatus(
            name=self._options.name,
            pool=self.lane.pool,
            machine_profile=self.lane.machine_profile,
            gpu_count=machine.gpu_count(),
            bundle=self.lane.bundle,
            bundle_config_hash=self._hash,
            models=self._models.statuses(),
            queue_depth=max(engines.queue_depth, len(self._jobs) - engines.inflight_batches),
            inflight_batches=engines.inflight_batches,
            pending_cost=engines.pending_cost,
            room=self._room() if self._intake.open else 0,
            memory_used_bytes=used,
            memory_total_bytes=total,
            healthy=not self._stop.is_set(),
            at=time.time(),
            metrics={**self._models.metrics(), "": own},
            requests=self._requests,
            tokens=self._tokens,
        )

    async def _progress(self) -> None:
        """Tell the queue that the work at hand is still being done; end what nobody waits for any more."""
        while True:
            await asyncio.sleep(self._bus.ack_wait / 3.0)
            self._jobs.expire()
            for ack in (*self._opening, *(job.delivery.ack for job in self._jobs if job.delivery is not None)):
                self._outbox.settle(ack, PROGRESS)

    async def _preload(self) -> None:
        for name in self._options.models:
            try:
                found = self._catalog.resolve(name)
            except LookupError as error:
                log.error("model %s: cannot be preloaded: %s", name, error)
                continue
            await self._models.load(found.model, found.profile)
        self._preloaded = True

    async def _reconnected(self) -> None:
        self._intake.reconnected()
        self._keeper.reconnected()

    async def _drain(self) -> None:
        """Take no more work, let what runs finish up to the limit, then cancel it."""
        log.info("worker %s: draining %d requests", self._options.name, len(self._jobs))
        self._pulse.beat()
        await self._intake.drain()
        running = {job.task for job in self._jobs if job.task is not None}
        forced = asyncio.create_task(self._force.wait())
        limit = asyncio.get_running_loop().time() + self._options.drain
        while running and not forced.done() and (left := limit - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait({*running, forced}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            running = {task for task in running if not task.done()}
        patience = FORCED_PATIENCE if forced.done() else CANCEL_PATIENCE
        forced.cancel()
        for job in self._jobs:
            job.end("drain")
        if running:
            await asyncio.wait(running, timeout=patience)

    async def _leave(self) -> None:
        async def bounded(step: Callable[[], Awaitable[None]]) -> None:
            try:
                async with asyncio.timeout(FORCED_PATIENCE if self._force.is_set() else 3.0):
                    await step()
            except Exception as error:  # leaving goes on whatever happens
                log.warning("worker %s: while leaving: %s: %s", self._options.name, type(error).__name__, error)

        await bounded(self._intake.stop)
        await bounded(self._outbox.flush)
        await bounded(self._pulse.say_goodbye)
        await bounded(self._outbox.close)
        if self._force.is_set():
            await bounded(self._models.close)
        else:
            await self._models.close()
        await bounded(self._client.close)
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        log.info("worker %s: stopped (process %d)", self._options.name, os.getpid())

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)

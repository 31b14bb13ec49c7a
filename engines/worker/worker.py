"""The worker itself: takes deliveries, runs one task per request, acks when the answer is on its way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from engines.adapters.base import EngineDead, WorkError
from engines.bus import subjects, wire
from engines.bus.connection import connect
from engines.bus.payloads import Payloads
from engines.bus.pull import Delivery, PullConsumer
from engines.bus.settings import BusSettings
from engines.bus.streams import ensure_consumer, ensure_stream
from engines.bus.subjects import Lane
from engines.bus.tasks import ended
from engines.catalog import Catalog
from engines.protocol import tracing
from engines.protocol.catalog import Resolved
from engines.protocol.cluster import WorkerStatus
from engines.protocol.events import AnyEvent, Completed, Delta
from engines.protocol.work import GenerateWork, Work

from . import log as logs
from . import machine
from .keeper import Keeper
from .models import Factory, LoadFailed, Models
from .options import WorkerOptions
from .outbox import ACK, NAK, PROGRESS, TERM, Outbox
from .reply import AttemptReply

log = logging.getLogger("sie.worker")

HEARTBEAT_EVERY = 1.0
LAG_EVERY = 0.1
LAG_DECAY = 0.8
REMEMBER_CANCELLED = 10_000
CANCEL_PATIENCE = 5.0
PATIENCE = 0.95
"""Share of a request's time that may pass before its model must be ready."""


class Job:
    """One request at work: its task, its latest delivery, and why it is being ended, if it is.

    ``fetch_ms``: what it took to fetch a body that was too large for its message.
    """

    def __init__(self, work: Work, delivery: Delivery, fetch_ms: float = 0.0) -> None:
        self.work = work
        self.fetch_ms = fetch_ms
        self.delivery: Delivery | None = delivery
        self.task: asyncio.Task[None] | None = None
        self.ending: str | None = None


class Worker:
    """Serves one lane until told to stop."""

    def __init__(self, options: WorkerOptions, bus: BusSettings, catalog: Catalog, factory: Factory) -> None:
        self.lane = Lane(options.pool, options.machine_profile, options.bundle)
        self._options = options
        self._bus = bus
        self._catalog = catalog
        self._models = Models(factory, self._state_changed, options.memory_budget)
        self._jobs: dict[str, Job] = {}
        self._cancelled: OrderedDict[str, None] = OrderedDict()
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._beat = asyncio.Event()
        self._hash = catalog.bundle_config_hash(options.bundle)
        itself = WorkerStatus(
            name=options.name,
            pool=options.pool,
            machine_profile=options.machine_profile,
            bundle=options.bundle,
        )
        self._keeper = Keeper(catalog, self._models, itself, self._catalog_changed)
        self._lag = 0.0
        self._tracing = tracing.from_env("oasgate-worker")
        self._requests = 0
        self._tokens = 0

    def stop(self) -> None:
        """First call: drain. Second call: cancel what still runs."""
        if self._stop.is_set():
            self._force.set()
        self._stop.set()

    async def run(self) -> None:
        """Connect, serve, drain, leave."""
        self._client: Client = await connect(self._bus, f"worker-{self._options.name}", on_reconnect=self._reconnected)
        self._js: JetStreamContext = self._client.jetstream(timeout=5.0)
        self._payloads = Payloads(self._client, self._js, self._bus)
        self._outbox = Outbox(self._client, self._payloads)
        await self._client.subscribe(subjects.CANCEL, cb=self._on_cancel)
        await self._client.subscribe(subjects.HELLO, cb=self._on_hello)
        await self._ensure()
        self._pull = PullConsumer(self._client, self.lane, self._take, self._room)
        await self._pull.start()
        background = [
            asyncio.create_task(task, name=name)
            for name, task in (
                ("heartbeat", self._heartbeat()),
                ("lag", self._watch_lag()),
                ("progress", self._progress()),
                ("preload", self._preload()),
                ("recreate", self._recreate()),
                ("keeper", self._keeper.run(self._client, self._bus)),
            )
        ]
        log.info("worker %s: serving %s", self._options.name, "/".join(self.lane))
        try:
            await self._stop.wait()
            await self._drain()
        finally:
            await ended(*background)
            await self._leave()

    def _room(self) -> int:
        return 0 if self._stop.is_set() else max(0, self._options.max_inflight - len(self._jobs))

    def _take(self, delivery: Delivery) -> None:
        job = asyncio.get_running_loop().create_task(self._open(delivery))
        job.add_done_callback(_log_failure)

    async def _open(self, delivery: Delivery) -> None:
        """Decode a delivery and start on it, unless it is settled already."""
        began = time.perf_counter()
        try:
            work = wire.decode_work(await self._payloads.fetch(delivery.headers, delivery.data))
        except msgspec.DecodeError as error:
            log.error("work cannot be decoded and is dropped: %s", error)
            self._outbox.settle(delivery.ack, TERM)
            return
        request_id = work.request_id
        running = self._jobs.get(request_id)
        if running is not None:
            # our sign of life came late, and the queue delivered the same work anew
            if running.delivery is None:
                self._outbox.settle(delivery.ack, ACK)
            else:
                running.delivery = delivery
            return
        if request_id in self._cancelled or (work.deadline and time.time() > work.deadline):
            self._cancelled.pop(request_id, None)
            self._outbox.settle(delivery.ack, ACK)
            await self._payloads.drop(delivery.headers)
            return
        if self._stop.is_set():
            self._outbox.settle(delivery.ack, NAK)
            return
        fetched = subjects.PAYLOAD_HEADER in delivery.headers
        job = Job(work, delivery, (time.perf_counter() - began) * 1e3 if fetched else 0.0)
        self._jobs[request_id] = job
        job.task = asyncio.create_task(self._work(job, delivery), name=f"request {request_id}")
        job.task.add_done_callback(_log_failure)

    async def _work(self, job: Job, delivery: Delivery) -> None:
        work = job.work

        def begun() -> None:
            # a stream that has begun is never tried anew
            if isinstance(work, GenerateWork) and work.stream:
                self._settle(job, ACK)

        reply = AttemptReply(work, uuid.uuid4().hex[:12], self._options.name, self._send, begun)
        reply.payload_fetch_ms = job.fetch_ms
        verdict = ACK
        try:
            if delivery.tries > self._options.max_tries:
                message = f"the work was given up after {self._options.max_tries} deliveries without an answer"
                reply.failed("transport_failure", message)
            else:
                await self._traced(work, reply)
        except asyncio.CancelledError:
            if job.ending == "drain" and not reply.begun:
                verdict = NAK
            elif job.ending == "drain":
                reply.failed("transport_failure", "the worker is shutting down")
            else:
                reply.failed("cancelled", "the request was cancelled")
        finally:
            del self._jobs[work.request_id]
            self._settle(job, verdict)
            self._pull.poke()
        if verdict is ACK:
            await self._payloads.drop(delivery.headers)

    async def _traced(self, work: Work, reply: AttemptReply) -> None:
        """Run with the request's id on every log line, and below the gateway's span."""
        logs.REQUEST.set(work.request_id)
        if self._tracing is None:
            await self._run(work, reply)
            return
        span = self._tracing.start(
            "work", "consumer", work.traceparent, work.tracestate, model=work.model, request_id=work.request_id
        )
        fault: str | None = "cancelled"
        try:
            await self._run(work, reply)
            fault = reply.fault
        finally:
            span.end(fault, queue_ms=reply.queue_ms, worker=self._options.name)

    async def _run(self, work: Work, reply: AttemptReply) -> None:
        """Run the engine and turn every way it can fail into an event."""
        try:
            resolved = self._find(work)
            reply.bundle_config_hash = self._hash
            reply.execution_identity = self._catalog.execution_identity(resolved)
            await self._run_engine(work, resolved, reply)
            if not reply.ended:
                reply.failed("malformed_worker_response", "the engine ended without a result")
        except WorkError as error:
            reply.failed(
                error.code, error.message, param=error.param, retry_after=error.retry_after, details=error.details
            )
        except LoadFailed as error:
            details = {"error_class": error.error_class, "attempts": error.attempts, "permanent": error.permanent}
            reply.failed("MODEL_LOAD_FAILED", f"Model {work.model!r} failed to load: {error}", details=details)
        except Exception as error:
            log.exception("request %s: %s failed", work.request_id, work.model)
            reply.failed("inference_error", f"the engine failed: {type(error).__name__}")

    async def _run_engine(self, work: Work, resolved: Resolved, reply: AttemptReply) -> None:
        """Run the work; once more on a new engine if the first one died before it put anything out."""
        for tries_left in (1, 0):
            # a little before the gateway gives up, so that the caller hears why
            left = (work.deadline - time.time()) * PATIENCE if work.deadline else None
            waiting = asyncio.timeout(left)
            try:
                async with contextlib.AsyncExitStack() as stack:
                    async with waiting:
                        engine = await stack.enter_async_context(self._models.use(resolved.model, resolved.profile))
                    reply.started()
                    try:
                        await engine.run(work, reply)
                    except EngineDead:
                        self._models.discard(resolved.model, resolved.profile, engine)
                        raise
                return
            except EngineDead as error:
                log.error("request %s: %s", work.request_id, error.message)
                if reply.begun or not tries_left:
                    raise
            except TimeoutError:
                if not waiting.expired():
                    raise
                message = f"model {work.model!r} was not ready before the request's deadline"
                raise WorkError("MODEL_LOADING", message, retry_after=5) from None

    def _find(self, work: Work) -> Resolved:
        name = work.model if work.profile == "default" else f"{work.model}:{work.profile}"
        try:
            found = self._catalog.resolve(name)
        except LookupError as error:
            raise WorkError("model_not_found", f"this worker's catalog lacks {name!r}: {error}") from error
        return found

    def _send(self, subject: str, event: AnyEvent) -> None:
        """Count what goes out; heart-beats tell it."""
        if isinstance(event, Delta):
            self._tokens += event.tokens
        elif isinstance(event, Completed):
            self._requests += 1
        self._outbox.event(subject, event)

    def _settle(self, job: Job, verdict: bytes) -> None:
        if job.delivery is not None:
            self._outbox.settle(job.delivery.ack, verdict)
            job.delivery = None

    async def _on_cancel(self, message: Msg) -> None:
        for request_id in msgspec.msgpack.decode(message.data, type=list[str]):
            job = self._jobs.get(request_id)
            if job is not None and job.task is not None:
                job.ending = job.ending or "cancel"
                job.task.cancel()
            else:
                self._cancelled[request_id] = None
                if len(self._cancelled) > REMEMBER_CANCELLED:
                    self._cancelled.popitem(last=False)

    async def _on_hello(self, _message: Msg) -> None:
        self._beat.set()

    def _catalog_changed(self) -> None:
        self._hash = self._catalog.bundle_config_hash(self._options.bundle)
        self._beat.set()

    def _state_changed(self) -> None:
        self._beat.set()

    async def _heartbeat(self) -> None:
        subject = f"{subjects.HEALTH}.{subjects.token(self._options.name)}"
        while True:
            with contextlib.suppress(Exception):  # not connected: the next one tells the same
                used, total = await asyncio.to_thread(machine.memory)
                await self._client.publish(subject, wire.encode(self.status(used, total)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_EVERY):
                    await self._beat.wait()
            self._beat.clear()

    async def _watch_lag(self) -> None:
        """How late the event loop runs a timer: the worst of the last second or so."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY
            await asyncio.sleep(LAG_EVERY)
            self._lag = max(self._lag * LAG_DECAY, loop.time() - due)

    def status(self, used: int, total: int) -> WorkerStatus:
        """What the next heart-beat says."""
        engines = self._models.load_of_engines()
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
            memory_used_bytes=used,
            memory_total_bytes=total,
            healthy=not self._stop.is_set(),
            at=time.time(),
            metrics={**self._models.metrics(), "": {"event_loop_lag_seconds": self._lag, "jobs": len(self._jobs)}},
            requests=self._requests,
            tokens=self._tokens,
        )

    async def _progress(self) -> None:
        """Tell the queue that the work at hand is still being done."""
        while True:
            await asyncio.sleep(self._bus.ack_wait / 3.0)
            for job in list(self._jobs.values()):
                if job.delivery is not None:
                    self._outbox.settle(job.delivery.ack, PROGRESS)

    async def _preload(self) -> None:
        for name in self._options.models:
            try:
                found = self._catalog.resolve(name)
            except LookupError as error:
                log.error("model %s: cannot be preloaded: %s", name, error)
                continue
            await self._models.load(found.model, found.profile)

    async def _ensure(self) -> None:
        await ensure_stream(self._js, self.lane, self._bus)
        await ensure_consumer(self._js, self.lane, self._bus)

    async def _recreate(self) -> None:
        """A bus with memory streams that was restarted has forgotten queue and consumer."""
        while True:
            await self._pull.missing.wait()
            self._pull.missing.clear()
            try:
                await self._ensure()
                self._pull.reset()
            except Exception as error:  # still coming up: ask again
                log.warning("bus: cannot create the queue: %s", error)
                self._pull.missing.set()
                await asyncio.sleep(0.5)

    async def _reconnected(self) -> None:
        self._pull.missing.set()
        self._keeper.reconnected()

    async def _drain(self) -> None:
        """Take no more work, let what runs finish up to the limit, then cancel it."""
        log.info("worker %s: draining %d requests", self._options.name, len(self._jobs))
        self._beat.set()
        await self._pull.stop()
        running = {job.task for job in self._jobs.values() if job.task is not None}
        forced = asyncio.create_task(self._force.wait())
        limit = asyncio.get_running_loop().time() + self._options.drain
        while running and not forced.done() and (left := limit - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait({*running, forced}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            running = {task for task in running if not task.done()}
        forced.cancel()
        for job in self._jobs.values():
            job.ending = "drain"
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CANCEL_PATIENCE)

    async def _leave(self) -> None:
        async def bounded(step: Callable[[], Awaitable[None]]) -> None:
            try:
                async with asyncio.timeout(3.0):
                    await step()
            except Exception as error:  # leaving goes on whatever happens
                log.warning("worker %s: while leaving: %s: %s", self._options.name, type(error).__name__, error)

        await bounded(self._pull.stop)
        await bounded(self._say_goodbye)
        await bounded(self._outbox.close)
        await self._models.close()
        await bounded(self._client.close)
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        log.info("worker %s: stopped (process %d)", self._options.name, os.getpid())

    async def _say_goodbye(self) -> None:
        await self._outbox.flush()
        name = self._options.name
        await self._client.publish(f"{subjects.GOODBYE}.{subjects.token(name)}", wire.encode((name, "has shut down")))
        await self._client.flush(timeout=1)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("task %s failed", task.get_name(), exc_info=error)

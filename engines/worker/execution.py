"""Doing one work item: finding its model, running its engine, and turning every way to fail into an event."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from engines.adapters.base import EngineDead, WorkError
from engines.catalog import Catalog
from engines.protocol.catalog import Resolved, variant
from engines.protocol.request import REQUEST
from engines.protocol.tracing import Tracing
from engines.protocol.work import Work

from .jobs import Job
from .models import Models
from .reply import AttemptReply
from .slot import LoadFailed

log = logging.getLogger("sie.worker")

PATIENCE = 0.95
"""Share of a request's time that may pass before its model must be ready."""


class Execution:
    """Runs jobs on the engines of one worker. ``config_hash`` tells the bundle's configuration of the moment."""

    def __init__(
        self,
        catalog: Catalog,
        models: Models,
        worker: str,
        config_hash: Callable[[], str],
        tracing: Tracing | None = None,
    ) -> None:
        self._catalog = catalog
        self._models = models
        self._worker = worker
        self._config_hash = config_hash
        self._tracing = tracing

    async def run(self, job: Job, reply: AttemptReply) -> str | None:
        """Run with the request's id on every log line, and below the gateway's span.

        Returns:
            The class of an engine's error that nobody foresaw.
        """
        work = job.work
        REQUEST.set(work.request_id)
        if self._tracing is None:
            return await self._run(job, reply)
        span = self._tracing.start(
            "work", "consumer", work.traceparent, work.tracestate, model=work.model, request_id=work.request_id
        )
        fault: str | None = "cancelled"
        try:
            error_class = await self._run(job, reply)
            fault = reply.fault
            return error_class
        finally:
            span.end(fault, queue_ms=reply.queue_ms, worker=self._worker)

    def has_loaded(self, work: Work) -> bool:
        """Whether the work could begin at once."""
        try:
            resolved = self._find(work)
        except WorkError:
            return False
        return self._models.is_loaded(resolved.model, resolved.profile)

    async def _run(self, job: Job, reply: AttemptReply) -> str | None:
        work = job.work
        try:
            resolved = self._find(work)
            reply.bundle_config_hash = self._config_hash()
            reply.execution_identity = self._catalog.execution_identity(resolved)
            await self._run_engine(job, resolved, reply)
            if not reply.ended:
                reply.failed("malformed_worker_response", "the engine ended without a result")
        except WorkError as error:
            reply.failed(
                error.code, error.message, param=error.param, retry_after=error.retry_after, details=error.details
            )
            return type(error).__name__ if isinstance(error, EngineDead) else None
        except LoadFailed as error:
            details = {"error_class": error.error_class, "attempts": error.attempts, "permanent": error.permanent}
            reply.failed("MODEL_LOAD_FAILED", f"Model {work.model!r} failed to load: {error}", details=details)
        except Exception as error:
            log.exception("request %s: %s failed", work.request_id, work.model)
            reply.failed("inference_error", f"the engine failed: {type(error).__name__}")
            return type(error).__name__
        return None

    async def _run_engine(self, job: Job, resolved: Resolved, reply: AttemptReply) -> None:
        """Run the work; once more on a new engine if the first one died before it put anything out."""
        work = job.work
        for tries_left in (1, 0):
            loading = not self._models.is_loaded(resolved.model, resolved.profile)
            if loading:
                job.wait_for_load()
            # a little before the gateway gives up, so that the caller hears why
            left = None if job.time_left is None else job.time_left * PATIENCE
            waiting = asyncio.timeout(left)
            try:
                async with contextlib.AsyncExitStack() as stack:
                    async with waiting:
                        engine = await stack.enter_async_context(self._models.use(resolved.model, resolved.profile))
                    if loading:
                        job.loaded()
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
        name = variant(work.model, work.profile)
        try:
            found = self._catalog.resolve(name)
        except LookupError as error:
            raise WorkError("model_not_found", f"this worker's catalog lacks {name!r}: {error}") from error
        return found

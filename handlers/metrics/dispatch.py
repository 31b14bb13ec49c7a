"""A dispatcher that measures: what handlers submit goes through it, and so do the events that come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from time import perf_counter

from msgspec import structs

from engines.protocol.catalog import variant
from engines.protocol.cluster import Answer, Dispatcher, DispatchError, Route, Timeouts
from engines.protocol.events import AnyEvent, Completed, Delta, Failed
from engines.protocol.tracing import Span, Tracing
from engines.protocol.work import GenerateWork, Work

from .demand import Want
from .registry import Metrics, ModelSeries


class Metered:
    """A ``Dispatcher`` over another one. With ``tracing`` each work item gets a span, the parent of the worker's."""

    def __init__(self, inner: Dispatcher, metrics: Metrics, tracing: Tracing | None = None) -> None:
        self._inner = inner
        self._metrics = metrics
        self._tracing = tracing

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Answer:
        """See ``engines.protocol.cluster.Dispatcher``."""
        model = variant(work.model, work.profile)
        series = self._metrics.of_model(work.request_id, model)
        span = None
        if self._tracing is not None:
            span = self._span(self._tracing, work, model)
            work = structs.replace(work, traceparent=span.traceparent, tracestate=span.tracestate)
        began = perf_counter()
        try:
            answer = await self._inner.submit(work, route, timeouts)
        except DispatchError as error:
            if span is not None:
                span.end(error.code)
            if error.code == "provisioning":
                self._metrics.provisioning.inc()
                profile = route.machine_profile or next(iter(route.machine_profiles), "")
                self._metrics.demand.add(Want(route.pool, profile, work.bundle))
            self._metrics.rejected.labels(error.code).inc()
            raise
        self._metrics.published.inc()
        self._metrics.publish.observe(answer.publish_ms / 1e3)
        streams = isinstance(work, GenerateWork) and work.stream
        return _Measured(answer, self._metrics, series, began, streams, span)

    @staticmethod
    def _span(tracing: Tracing, work: Work, model: str) -> Span:
        operation = type(work).__name__.removesuffix("Work").lower()
        return tracing.start(
            operation, "producer", work.traceparent, work.tracestate, model=model, request_id=work.request_id
        )


class _Measured:
    """An answer whose events are looked at as they pass."""

    __slots__ = ("_answer", "_began", "_last", "_metrics", "_next", "_series", "_span", "_streams", "publish_ms")

    def __init__(
        self, answer: Answer, metrics: Metrics, series: ModelSeries, began: float, streams: bool, span: Span | None
    ) -> None:
        self._span = span
        self.publish_ms = answer.publish_ms
        self._answer = answer
        self._next = aiter(answer).__anext__
        self._metrics = metrics
        self._series = series
        self._began = began
        self._streams = streams
        self._last = 0.0

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        return self

    async def __anext__(self) -> AnyEvent:
        event = await self._next()
        if isinstance(event, Delta):
            if event.tokens:
                self._metrics.throughput.tokens(event.tokens)
            if self._streams:
                self._token()
        elif isinstance(event, Completed):
            self._completed(event)
        elif isinstance(event, Failed) and self._span is not None:
            self._span.end(event.code)
        return event

    async def aclose(self) -> None:
        if self._span is not None:
            self._span.end("cancelled")  # unless it has ended
        await self._answer.aclose()

    def _token(self) -> None:
        now = perf_counter()
        if self._last:
            self._series.inter.observe(now - self._last)
        else:
            self._series.first.observe(now - self._began)
            if self._span is not None:
                self._span.event("first token")
            self._metrics.throughput.first_token(now - self._began)
        self._last = now

    def _completed(self, event: Completed) -> None:
        series, usage, timing = self._series, event.usage, event.timing
        if self._span is not None:
            self._span.end(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)
        series.wait.observe(perf_counter() - self._began)
        series.prompt.inc(usage.prompt_tokens)
        series.completion.inc(usage.completion_tokens)
        series.cached.inc(usage.cached_tokens)
        self._metrics.throughput.tokens(usage.prompt_tokens)
        for stage, ms in (
            ("queue", timing.queue_ms),
            ("tokenization", timing.tokenization_ms),
            ("inference", timing.inference_ms),
            ("postprocessing", timing.postprocessing_ms),
            ("payload_fetch", timing.payload_fetch_ms),
        ):
            if ms > 0:
                series.stages[stage].observe(ms / 1e3)

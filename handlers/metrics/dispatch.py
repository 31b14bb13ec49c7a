"""A dispatcher that measures: what handlers submit goes through it, and so do the events that come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from time import perf_counter

from engines.protocol.cluster import Answer, Dispatcher, DispatchError, Route, Timeouts
from engines.protocol.events import AnyEvent, Completed, Delta
from engines.protocol.work import GenerateWork, Work

from .registry import Metrics, ModelSeries


class Metered:
    """A ``Dispatcher`` over another one."""

    def __init__(self, inner: Dispatcher, metrics: Metrics) -> None:
        self._inner = inner
        self._metrics = metrics

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Answer:
        """See ``engines.protocol.cluster.Dispatcher``."""
        model = work.model if work.profile == "default" else f"{work.model}:{work.profile}"
        series = self._metrics.of_model(work.request_id, model)
        began = perf_counter()
        try:
            answer = await self._inner.submit(work, route, timeouts)
        except DispatchError as error:
            if error.code == "provisioning":
                self._metrics.provisioning.inc()
            self._metrics.rejected.labels(error.code).inc()
            raise
        self._metrics.published.inc()
        self._metrics.publish.observe(answer.publish_ms / 1e3)
        return _Measured(answer, self._metrics, series, began, isinstance(work, GenerateWork) and work.stream)


class _Measured:
    """An answer whose events are looked at as they pass."""

    __slots__ = ("_answer", "_began", "_events", "_last", "_metrics", "_series", "_streams", "publish_ms")

    def __init__(self, answer: Answer, metrics: Metrics, series: ModelSeries, began: float, streams: bool) -> None:
        self.publish_ms = answer.publish_ms
        self._answer = answer
        self._events = aiter(answer)
        self._metrics = metrics
        self._series = series
        self._began = began
        self._streams = streams
        self._last = 0.0

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        return self

    async def __anext__(self) -> AnyEvent:
        event = await anext(self._events)
        if isinstance(event, Delta):
            self._metrics.throughput.tokens(event.tokens)
            if self._streams:
                self._token()
        elif isinstance(event, Completed):
            self._completed(event)
        return event

    async def aclose(self) -> None:
        await self._answer.aclose()

    def _token(self) -> None:
        now = perf_counter()
        if self._last:
            self._series.inter.observe(now - self._last)
        else:
            self._series.first.observe(now - self._began)
            self._metrics.throughput.first_token(now - self._began)
        self._last = now

    def _completed(self, event: Completed) -> None:
        series, usage, timing = self._series, event.usage, event.timing
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

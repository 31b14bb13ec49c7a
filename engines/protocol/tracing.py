"""OpenTelemetry on both sides of the bus: only with ``OTEL_EXPORTER_OTLP_ENDPOINT`` set, and imported only then.

A request is one trace: the server's span, which Litestar's plugin makes (``handlers.http.spans``), is the parent of the
gateway's span of a work item, and that one of the worker's, by the W3C context in the item.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Literal

log = logging.getLogger("sie.tracing")

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Span:
    """An open span. ``traceparent`` and ``tracestate`` are what a child on another machine needs."""

    def __init__(self, span: Any) -> None:
        from opentelemetry.propagate import inject
        from opentelemetry.trace import set_span_in_context

        carrier: dict[str, str] = {}
        inject(carrier, set_span_in_context(span))
        self._span = span
        self.traceparent = carrier.get("traceparent")
        self.tracestate = carrier.get("tracestate")

    def event(self, name: str, **attributes: str | int | float) -> None:
        """Something that happened at this moment."""
        self._span.add_event(name, attributes)

    def end(self, fault: str | None = None, **attributes: str | int | float) -> None:
        """Close the span; ``fault`` marks it as failed. Later calls do nothing."""
        from opentelemetry.trace import Status, StatusCode

        if self._span.is_recording():
            self._span.set_attributes(attributes)
            if fault is not None:
                self._span.set_status(Status(StatusCode.ERROR, fault))
            self._span.end()


class Tracing:
    """Starts spans of one service and sends them in the background."""

    def __init__(self, service: str, exporter: Any = None) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self.provider = TracerProvider(resource=Resource.create({"service.name": service}))
        self.provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self.provider.get_tracer("oasgate")

    def start(
        self,
        name: str,
        side: Literal["producer", "consumer"],
        traceparent: str | None,
        tracestate: str | None,
        **attributes: str | int | float,
    ) -> Span:
        """Open a span below the one that this task is in, or else below the caller's, if there is one."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, get_current_span

        carrier = {k: v for k, v in (("traceparent", traceparent), ("tracestate", tracestate)) if v}
        parent = None if get_current_span().get_span_context().is_valid else extract(carrier)
        kind = SpanKind.PRODUCER if side == "producer" else SpanKind.CONSUMER
        return Span(self._tracer.start_span(name, parent, kind, attributes))

    def close(self) -> None:
        """Send what is left; bounded in time."""
        self.provider.force_flush(2000)
        self.provider.shutdown()


def from_env(service: str, environ: Mapping[str, str] = os.environ) -> Tracing | None:
    """Tracing for this process, ``None`` when no endpoint is set or the packages are missing, which is logged."""
    if not environ.get(ENDPOINT, "").strip():
        return None
    try:
        return Tracing(environ.get("OTEL_SERVICE_NAME", "").strip() or service)
    except ImportError as error:
        log.error("%s is set and traces cannot be sent: %s", ENDPOINT, error)
        return None

"""The server's span of each request, by Litestar's OpenTelemetry plugin. Imported only where traces are sent.

A span is named by the route template that the access log has. It holds the path and the client's software; no query,
no header, no address of a client. Probes, which machines send every few seconds, have none.
"""

from __future__ import annotations

from typing import Any, Final

from litestar.middleware.base import DefineMiddleware
from litestar.plugins.opentelemetry import OpenTelemetryConfig, OpenTelemetryInstrumentationMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send
from opentelemetry.trace import TracerProvider, get_current_span

from ..metrics.registry import METHODS

PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_HEADERS: Final = frozenset({b"traceparent", b"tracestate", b"user-agent"})
_FACTS: Final = frozenset({"type", "method", "scheme", "http_version", "server", "path"})
_WHOLE: Final = "oasgate.scope"


class RequestSpans(OpenTelemetryInstrumentationMiddleware):
    """Shows the instrumentation only what a span may hold, and the application the whole request.

    The instrumentation takes down queries, and raises at bytes in them or in headers that are not the text it expects.
    """

    def __init__(self, app: ASGIApp, config: OpenTelemetryConfig) -> None:
        async def application(scope: Any, receive: Receive, send: Send) -> None:
            await app(scope[_WHOLE], receive, send)

        super().__init__(application, config)
        self._untraced = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["path"] in PROBES:
            await self._untraced(scope, receive, send)
            return
        seen: dict[str, Any] = {fact: value for fact, value in scope.items() if fact in _FACTS}
        seen["headers"] = [(name, value) for name, value in scope["headers"] if name in _HEADERS and value.isascii()]
        seen[_WHOLE] = scope
        await self.open_telemetry_middleware(seen, receive, send)  # type: ignore[arg-type]  # Litestar's types of ASGI


def middleware(provider: TracerProvider) -> DefineMiddleware:
    """What makes the spans. The application gives it to a plugin, which puts it around everything else."""
    return OpenTelemetryConfig(
        tracer_provider=provider,
        scope_span_details_extractor=lambda scope: (_method(str(scope.get("method", "WEBSOCKET"))), {}),
        exclude_spans=["receive", "send"],  # one for each chunk of a stream
        middleware_class=RequestSpans,
    ).middleware


def describe(method: str, route: str, request_id: str) -> None:
    """Say of the running request's span what is known once its operation is. ``route`` is empty where there is none."""
    span = get_current_span()
    if not span.is_recording():
        return
    span.set_attribute("request_id", request_id)
    if route:
        span.update_name(f"{_method(method)} {route}")
        span.set_attribute("http.route", route)


def _method(method: str) -> str:
    return method if method in METHODS else "HTTP"

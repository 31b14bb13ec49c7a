"""From results and failures to answers: status, headers, body."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from litestar.types import ASGIApp

from ..errors import Failure
from ..settings import Settings
from .answers import EVENT_STREAM, Answer, Done, EventStream, RawHeaders, negotiate
from .context import RequestContext
from .cors import Cors
from .envelopes import AUTH_CODES, with_auth
from .plan import Envelope, Plan

logger = logging.getLogger("sie.http")

_json: Final = msgspec.json.Encoder().encode
_msgpack: Final = msgspec.msgpack.Encoder().encode
_JSON: Final = "application/json"
_SOON: Final = 5.0
"""Longest wait, in seconds, that is asked of SDKs that sleep without telling their user."""
_OURS: Final = frozenset({b"x-sie-request-id", b"x-request-id", b"x-sie-version", b"x-sie-server-version"})


class Responder:
    """Writes answers. ``version`` is what ``X-SIE-Version`` says."""

    def __init__(self, settings: Settings, version: str) -> None:
        self.cors = Cors(settings.cors_origins)
        self._keep_alive = settings.keep_alive
        self._version = version.encode()
        self._always: RawHeaders = [(b"x-sie-version", self._version), (b"x-sie-server-version", self._version)]

    def success(self, plan: Plan, context: RequestContext, result: Any, done: Done) -> ASGIApp:
        """The answer that a handler's result stands for: a struct, bytes in ``context.media_type``, or event frames."""
        status = context.status or plan.success
        if isinstance(result, bytes):
            return Answer(status, result, self.headers(context, context.media_type or plan.media[0]), done)
        if not isinstance(result, msgspec.Struct) and isinstance(result, AsyncIterator):
            return self._stream(status, context, result, done)
        media = context.media_type
        if media is None:
            accept = context.raw.get(b"accept")
            single = accept is None or len(plan.media) == 1
            media = plan.media[0] if single else negotiate(accept or b"", plan.media)
        body = (_msgpack if "msgpack" in media else _json)(result)
        return Answer(status, body, self.headers(context, media), done)

    def _stream(self, status: int, context: RequestContext, frames: AsyncIterator[bytes], done: Done) -> EventStream:
        headers = self.headers(context, context.media_type or EVENT_STREAM)
        headers += ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))

        def fault(error: Exception) -> None:
            logger.error("stream of %s cut, request %s", context.operation.id, context.request_id, exc_info=error)

        return EventStream(frames, headers, status=status, keep_alive=self._keep_alive, done=done, fault=fault)

    def headers(self, context: RequestContext, media: str) -> RawHeaders:
        """Headers of every answer, then the handler's own."""
        identity = context.request_id.encode()
        headers = [
            (b"content-type", media.encode("latin-1")),
            (b"x-sie-request-id", identity),
            (b"x-request-id", identity),
            *self._always,
        ]
        if self.cors.enabled:
            headers += self.cors.headers(context.raw)
        for name, value in context.response_headers.items():
            lower = name.lower().encode("latin-1")
            if lower not in _OURS:
                headers.append((lower, value.encode("latin-1")))
        return headers

    def failure(self, envelope: Envelope, context: RequestContext, failure: Failure, done: Done | None) -> Answer:
        """The answer that a failure stands for, in the envelope that was settled on (headers: contract A.7)."""
        body = envelope.shape.write(failure)
        if failure.status in {401, 403} and failure.native in AUTH_CODES:
            body = with_auth(body, failure, envelope.family)
        context.response_headers = failure.headers
        headers = self.headers(context, _JSON)
        headers.append((b"x-sie-error-code", failure.native.encode("latin-1")))
        if "x-sie-error-version" in envelope.headers:
            headers.append((b"x-sie-error-version", self._version))
        if failure.retry_after is not None:
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(failure.retry_after))))
            if envelope.family != "detail":
                milliseconds = math.ceil(1000 * min(_SOON, failure.retry_after))
                headers.append((b"retry-after-ms", b"%d" % max(1, milliseconds)))
        if failure.terminal:
            headers.append((b"x-should-retry", b"false"))
        return Answer(envelope.status, _json(body), headers, done)

"""Native generation chunks: a state machine from events to frames, without HTTP (contract D.6)."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from engines.protocol.events import Completed, Delta
from generated.sie import models

from ..errors import Failure
from . import logprobs
from .frames import DONE, encode, frame
from .stream_errors import unfinished
from .usage import native_usage


class GenerateWriter:
    """Writes numbered deltas and one chunk that is ``done``.

    ``since`` is when the work was submitted, by ``clock``, in seconds: the first chunk tells the time to it.
    """

    def __init__(self, request_id: str, since: float, clock: Callable[[], float] = perf_counter) -> None:
        self._request_id = request_id
        self._since = since
        self._clock = clock
        self._prefix = b'data: {"request_id":%s,"seq":' % encode(request_id)
        self._seq = 0
        self._reason: str | None = None
        self._ttft: float | None = None

    def delta(self, event: Delta) -> bytes:
        if event.finish_reason is not None:
            self._reason = event.finish_reason
        if not event.text and not event.logprobs:
            return b""
        seq = self._seq
        self._seq += 1
        said = self._prefix + b'%d,"text_delta":%s,"done":false' % (seq, encode(event.text))
        if self._ttft is None:
            self._ttft = round((self._clock() - self._since) * 1000.0, 3)
            said += b',"ttft_ms":%s' % encode(self._ttft)
        if event.logprobs:
            said += b',"logprobs":%s' % encode(logprobs.content(event.logprobs))
        return said + b"}\n\n"

    def complete(self, event: Completed) -> bytes:
        if self._reason is None:
            raise unfinished()
        last = self._last(self._reason)
        last.usage = native_usage(event.usage)
        if self._ttft is not None:
            last.ttft_ms = self._ttft
        return frame(last) + DONE

    def fail(self, failure: Failure) -> bytes:
        last = self._last("error")
        last.error = models.GenerateChunkError(code=failure.code, message=failure.message)
        return frame(last) + DONE

    def _last(self, reason: str) -> models.GenerateChunk:
        return models.GenerateChunk(
            request_id=self._request_id, seq=self._seq, text_delta="", done=True, finish_reason=reason
        )

"""The asyncio front of the batching engine."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .model import Limits, Model
from .request import Request
from .stages import Stages

T = TypeVar("T")

FIRST_RETRY = 5.0
LONGEST_RETRY = 60.0
JOIN_TIMEOUT = 10.0


class Overloaded(Exception):
    """Too much is waiting. ``retry_after``: seconds until it should have been done, by the recent speed."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Closed(Exception):
    """The batcher is closed, or one of its threads died."""


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A finished request: what ``finish`` returned, the tokens of each input, and milliseconds per stage."""

    value: T
    tokens: list[int]
    queue_ms: float
    tokenization_ms: float
    inference_ms: float
    postprocessing_ms: float
    total_ms: float


@dataclass(frozen=True, slots=True)
class Load:
    """Requests under way, batches in their forward pass, and the (estimated) tokens of all requests."""

    requests: int
    running: int
    pending_tokens: int


class Batcher:
    """Merges the inputs of concurrent requests into batches of one model. All methods belong to one event loop.

    Admission has one rule: a request is refused when tokens worth ``limits.pending_tokens`` are under way already.
    So large and small requests with the same tokens are treated alike, and one larger than the limit can still run.
    """

    def __init__(self, model: Model, limits: Limits, name: str = "batcher") -> None:
        self._model = model
        self._limits = limits
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stages = Stages(model, limits, name, self._deliver, self._on_broken)
        self._requests: set[Request] = set()
        self._pending_tokens = 0
        self._closed: Closed | None = None
        self._busy_since = 0.0
        self._tokens_done = 0
        self._speed = 0.0

    def start(self) -> None:
        """Start the threads; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._stages.start()

    def submit(self, inputs: Sequence[Any], finish: Callable[[list[Any]], T]) -> Coroutine[Any, Any, Done[T]]:
        """Run all ``inputs`` (at least one); ``finish`` gets their rows in order, on the post-process thread.

        The request is admitted, or refused, in the call itself; what it returns must be awaited. Cancelling that
        drops whatever has not begun.

        Raises:
            Overloaded: too many tokens are waiting.
            Closed: the batcher cannot work any more.
            Exception: whatever the model or ``finish`` raised for these inputs.
        """
        if self._closed is not None:
            raise self._closed
        if self._pending_tokens >= self._limits.pending_tokens:
            raise Overloaded(f"{self._pending_tokens} tokens are waiting already", self._retry_after())
        assert self._loop is not None
        request = Request(inputs, finish, self._loop.create_future(), max(1, self._model.estimate(inputs)))
        if not self._requests:
            self._busy_since = time.perf_counter()
            self._tokens_done = 0
        self._requests.add(request)
        self._pending_tokens += request.cost
        self._stages.submit(request)
        return self._wait(request)

    async def _wait(self, request: Request) -> Done[Any]:
        try:
            value = await request.future
        except asyncio.CancelledError:
            self._stages.drop(request)
            raise
        finally:
            self._requests.discard(request)
            self._pending_tokens -= request.cost
        return self._done(request, value)

    def load(self) -> Load:
        return Load(len(self._requests), self._stages.running, self._pending_tokens)

    def metrics(self) -> dict[str, float]:
        """Samples for the heart-beat: divided by batches or by each other they are batch size and padding waste."""
        counts = self._stages.counts
        return {
            "batches_total": counts.batches,
            "batch_inputs_total": counts.inputs,
            "batch_tokens_total": counts.tokens,
            "batch_padded_tokens_total": counts.padded_tokens,
            "batch_seconds_total": counts.seconds,
        }

    async def close(self) -> None:
        """Stop the threads and fail what is under way; returns when they ended or after ten seconds."""
        self._fail_all(Closed("the engine is closed"))
        self._stages.stop()
        await asyncio.to_thread(self._stages.join, JOIN_TIMEOUT)

    def _done(self, request: Request, value: T) -> Done[T]:
        stamps = request.stamps
        tokens = sum(request.tokens)
        self._tokens_done += tokens
        busy = stamps.finished - self._busy_since
        if busy > 0:
            self._speed = self._tokens_done / busy
        waited = stamps.tokenize_began - stamps.submitted + max(0.0, stamps.forward_began - stamps.tokenize_ended)
        return Done(
            value,
            request.tokens,
            queue_ms=waited * 1e3,
            tokenization_ms=(stamps.tokenize_ended - stamps.tokenize_began) * 1e3,
            inference_ms=(stamps.forward_ended - stamps.forward_began) * 1e3,
            postprocessing_ms=(stamps.finished - stamps.forward_ended) * 1e3,
            total_ms=(stamps.finished - stamps.submitted) * 1e3,
        )

    def _retry_after(self) -> float:
        if not self._speed:
            return FIRST_RETRY
        return float(min(LONGEST_RETRY, max(1.0, math.ceil(self._pending_tokens / self._speed))))

    def _deliver(self, done: list[tuple[Request, Any, Exception | None]]) -> None:
        self._on_loop(self._resolve, done)

    def _on_broken(self, error: Exception) -> None:
        self._on_loop(self._fail_all, Closed(f"a thread of the engine died: {type(error).__name__}: {error}"))

    def _on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has gone, and with it everyone who waited
            self._loop.call_soon_threadsafe(function, *arguments)

    def _resolve(self, done: list[tuple[Request, Any, Exception | None]]) -> None:
        for request, value, error in done:
            if request.future.done():
                continue
            if error is None:
                request.future.set_result(value)
            else:
                request.future.set_exception(error)

    def _fail_all(self, reason: Closed) -> None:
        self._closed = self._closed or reason
        for request in self._requests:
            request.abandoned = True
            if not request.future.done():
                request.future.set_exception(reason)

"""The threads: tokenise, schedule, forward, post-process. Each owns what it reads; messages are all they share."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .model import Limits, Model
from .request import Request
from .schedule import PADDING_SHARE, Piece, Schedule

log = logging.getLogger("sie.batching")

PORTION = 64
"""Inputs of one request tokenised in a row, so that a long list does not hold up a short one."""

RECOVERY = 32
"""Batches without a fault after which a budget that was halved for want of memory is doubled again."""


class OutOfMemory(Exception):
    """A single input did not fit into memory."""


@dataclass(slots=True)
class Dropped:
    """To the scheduler: forget this request."""

    request: Request


@dataclass(slots=True)
class Idle:
    """To the scheduler: this worker wants a batch. ``starved``: its last one ran out of memory at that size."""

    worker: queue.SimpleQueue[Any]
    ran_out_at: int = 0


@dataclass(slots=True)
class Batch:
    """To a worker: run these pieces; ``share`` is how many workers are busy with this one."""

    pieces: list[Piece]
    share: int


@dataclass(slots=True)
class Outcome:
    """To the post-process stage: output of a batch, or the error of a request."""

    pieces: list[Piece]
    output: Any = None
    began: float = 0.0
    ended: float = 0.0
    error: Exception | None = None


@dataclass(slots=True)
class Counts:
    """What the forward passes took since the start; written by the post-process stage alone.

    ``padded_tokens`` counts what was computed, padding included, and ``tokens`` what of it was input.
    """

    batches: int = 0
    inputs: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    seconds: float = 0.0


STOP = object()


class Stages:
    """All threads of one batcher. ``deliver`` gets finished requests with their result or error, on a thread."""

    def __init__(
        self,
        model: Model,
        limits: Limits,
        name: str,
        deliver: Callable[[list[tuple[Request, Any, Exception | None]]], None],
        broken: Callable[[Exception], None],
    ) -> None:
        self._model = model
        self._limits = limits
        self._deliver = deliver
        self._broken = broken
        self._tokenizer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._scheduler: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._finisher: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._workers: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(limits.workers)]
        self.running = 0
        self.counts = Counts()
        self._threads = [
            self._thread(f"{name} tokenize", self._tokenize),
            self._thread(f"{name} schedule", self._schedule),
            self._thread(f"{name} finish", self._finish),
            *(self._thread(f"{name} forward {i}", self._forward, w) for i, w in enumerate(self._workers)),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, request: Request) -> None:
        self._tokenizer.put(request)

    def drop(self, request: Request) -> None:
        """The caller has gone: whatever has not begun is left undone."""
        request.abandoned = True
        self._scheduler.put(Dropped(request))

    def stop(self) -> None:
        """Ask every thread to end after what it is doing now."""
        for inbox in (self._tokenizer, self._scheduler, self._finisher, *self._workers):
            inbox.put(STOP)

    def join(self, timeout: float) -> bool:
        """Wait for the threads, ``timeout`` seconds in all; whether they ended."""
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _thread(self, name: str, run: Callable[..., None], *arguments: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                run(*arguments)
            except Exception as error:
                log.exception("%s: the thread died", name)
                self._broken(error)

        return threading.Thread(target=guarded, name=name, daemon=True)

    # --- tokenise ---------------------------------------------------------------------------------------------------

    def _tokenize(self) -> None:
        """Tokenise a portion of every waiting request in one call, round after round."""
        waiting: deque[Request] = deque()
        while True:
            message = self._tokenizer.get() if not waiting else None
            while True:
                if message is STOP:
                    return
                if message is not None:
                    waiting.append(message)
                try:
                    message = self._tokenizer.get_nowait()
                except queue.Empty:
                    break
            round_ = [request for request in waiting if not request.abandoned]
            self._tokenize_portions(round_)
            waiting = deque(r for r in round_ if not r.abandoned and r.tokenized < len(r.inputs))

    def _tokenize_portions(self, requests: Sequence[Request]) -> None:
        began = time.perf_counter()
        portions = [request.inputs[request.tokenized : request.tokenized + PORTION] for request in requests]
        try:
            done = self._model.tokenize([text for portion in portions for text in portion])
        except Exception as error:
            if len(requests) == 1:
                self._finisher.put(Outcome([Piece(requests[0], 0, 0, None, None)], error=error))
                return
            # one request's inputs are at fault: the others must not suffer
            for request in requests:
                self._tokenize_portions([request])
            return
        ended = time.perf_counter()
        pieces: list[Piece] = []
        start = 0
        for request, portion in zip(requests, portions, strict=True):
            first = request.tokenized
            if not first:
                request.stamps.tokenize_began = began
            for offset, item in enumerate(done[start : start + len(portion)]):
                pieces.append(Piece(request, first + offset, item.length, item.features, item.group))
                request.tokens.append(item.tokens)
            start += len(portion)
            request.tokenized = first + len(portion)
            request.stamps.tokenize_ended = ended
        self._scheduler.put(pieces)

    # --- schedule ---------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Own the waiting set: pieces come in, batches go out to idle workers."""
        schedule = Schedule(padded=self._model.padded)
        idle: list[queue.SimpleQueue[Any]] = []
        budget = self._limits.batch_tokens
        faultless = 0
        while True:
            message = self._scheduler.get()
            while True:
                if message is STOP:
                    return
                if isinstance(message, Idle):
                    idle.append(message.worker)
                    if message.ran_out_at:
                        budget, faultless = max(1, min(budget, message.ran_out_at) // 2), 0
                    elif budget < self._limits.batch_tokens and (faultless := faultless + 1) >= RECOVERY:
                        budget, faultless = min(self._limits.batch_tokens, budget * 2), 0
                elif isinstance(message, Dropped):
                    schedule.drop(message.request)
                else:
                    schedule.add(piece for piece in message if not piece.request.abandoned)
                try:
                    message = self._scheduler.get_nowait()
                except queue.Empty:
                    break
            while idle and schedule.waiting:
                pieces = schedule.take(min(budget, self._portion(schedule, len(idle))))
                others = len(idle) - 1 if schedule.waiting else 0
                busy = len(self._workers) - len(idle) + 1
                # the one that worked last has the weights in its core's cache
                idle.pop().put(Batch(pieces, min(len(self._workers), busy + others)))
            self.running = len(self._workers) - len(idle)

    def _portion(self, schedule: Schedule, idle: int) -> int:
        """Tokens for the next of ``idle`` workers: waiting work is spread over them, the last one takes the rest."""
        if idle == 1:
            return self._limits.batch_tokens
        share = -(-schedule.waiting_tokens // idle)
        if self._model.padded:
            share += share // PADDING_SHARE
        return max(self._limits.least_batch_tokens, share)

    # --- forward ----------------------------------------------------------------------------------------------------

    def _forward(self, inbox: queue.SimpleQueue[Any]) -> None:
        self._scheduler.put(Idle(inbox))
        while (batch := inbox.get()) is not STOP:
            ran_out_at = self._run([piece for piece in batch.pieces if not piece.request.abandoned], batch.share)
            self._scheduler.put(Idle(inbox, ran_out_at))

    def _run(self, pieces: list[Piece], share: int) -> int:
        """Run a batch, halved as often as memory demands; the tokens of the smallest batch that ran out, or 0."""
        if not pieces:
            return 0
        began = time.perf_counter()
        try:
            output = self._model.forward([piece.features for piece in pieces], share)
        except Exception as error:
            return self._run_again(pieces, share, error)
        self._finisher.put(Outcome(pieces, output, began, time.perf_counter()))
        return 0

    def _run_again(self, pieces: list[Piece], share: int, error: Exception) -> int:
        """After a fault: smaller batches when memory ran out, otherwise each request by itself."""
        if self._model.is_out_of_memory(error):
            tokens = max(piece.length for piece in pieces) * len(pieces)
            if len(pieces) == 1:
                log.error("out of memory for a single input of %d tokens", pieces[0].length)
                failure = OutOfMemory(f"an input of {pieces[0].length} tokens does not fit into memory")
                self._finisher.put(Outcome(pieces, error=failure))
                return tokens
            log.warning("out of memory for %d inputs, %d tokens: halving", len(pieces), tokens)
            half = len(pieces) // 2
            return min(filter(None, (tokens, self._run(pieces[:half], share), self._run(pieces[half:], share))))
        requests = list(dict.fromkeys(piece.request for piece in pieces))
        if len(requests) == 1:
            log.error("a forward pass of %d inputs failed", len(pieces), exc_info=error)
            self._finisher.put(Outcome(pieces[:1], error=error))
            return 0
        return max(self._run([p for p in pieces if p.request is request], share) for request in requests)

    # --- post-process -----------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Split outputs back to their requests and finish those that are complete."""
        while (outcome := self._finisher.get()) is not STOP:
            done: list[tuple[Request, Any, Exception | None]] = []
            while outcome is not None:
                if outcome is STOP:
                    self._deliver(done)
                    return
                done += self._settle(outcome)
                try:
                    outcome = self._finisher.get_nowait() if not done else None
                except queue.Empty:
                    outcome = None
            if done:
                self._deliver(done)

    def _settle(self, outcome: Outcome) -> list[tuple[Request, Any, Exception | None]]:
        if outcome.error is None:
            try:
                rows = self._model.rows(outcome.output, len(outcome.pieces))
            except Exception as error:
                outcome.error = error
        if outcome.error is not None:
            requests = dict.fromkeys(piece.request for piece in outcome.pieces)
            return [self._fail(request, outcome.error) for request in requests if not request.abandoned]
        self._count(outcome)
        done: list[tuple[Request, Any, Exception | None]] = []
        for piece, row in zip(outcome.pieces, rows, strict=True):
            request: Request = piece.request
            if request.abandoned:
                continue
            request.rows[piece.index] = row
            request.left -= 1
            stamps = request.stamps
            stamps.forward_began = min(stamps.forward_began or outcome.began, outcome.began)
            stamps.forward_ended = max(stamps.forward_ended, outcome.ended)
            if not request.left:
                done.append(self._complete(request))
        return done

    def _count(self, outcome: Outcome) -> None:
        counts, lengths = self.counts, [piece.length for piece in outcome.pieces]
        counts.batches += 1
        counts.inputs += len(lengths)
        counts.tokens += sum(lengths)
        counts.padded_tokens += max(lengths) * len(lengths) if self._model.padded else sum(lengths)
        counts.seconds += outcome.ended - outcome.began

    def _complete(self, request: Request) -> tuple[Request, Any, Exception | None]:
        try:
            value = request.finish(request.rows)
        except Exception as error:
            return self._fail(request, error)
        request.stamps.finished = time.perf_counter()
        return request, value, None

    def _fail(self, request: Request, error: Exception) -> tuple[Request, Any, Exception | None]:
        self.drop(request)
        request.stamps.finished = time.perf_counter()
        return request, None, error

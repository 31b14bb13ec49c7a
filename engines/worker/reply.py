"""The ``Reply`` given to an engine: numbers the events of one attempt and puts them into the outbox."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable

from engines.protocol.events import (
    Admitted,
    AnyEvent,
    Completed,
    Delta,
    Failed,
    FailureCode,
    FinishReason,
    Output,
    Timing,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from engines.protocol.work import Work

_PROCESS = secrets.token_hex(6)
_tries = itertools.count(1 << 16)


class AttemptReply:
    """One attempt at one work item. ``begun`` once output went out, ``ended`` once the last event did.

    ``age``: how many seconds the work is old already.
    """

    def __init__(
        self,
        work: Work,
        attempt: str,
        worker: str,
        send: Callable[[str, AnyEvent], None],
        on_begun: Callable[[], None],
        age: float = 0.0,
    ) -> None:
        self._work = work
        self._attempt = attempt
        self._worker = worker
        self._send = send
        self._on_begun = on_begun
        self._seq = 0
        self._published = time.monotonic() - age
        self.queue_ms = 0.0
        self.payload_fetch_ms = 0.0
        self.bundle_config_hash: str | None = None
        self.execution_identity: str | None = None
        self.begun = False
        self.ended = False
        self.fault: str | None = None

    def started(self) -> None:
        """The engine takes the work now: what came before, but for the body's fetch, was waiting."""
        since = (time.monotonic() - self._published) * 1000.0
        self.queue_ms = max(0.0, since - self.payload_fetch_ms)

    def admitted(self, *, prompt_tokens: int = 0) -> None:
        self._put(
            Admitted(
                request_id=self._work.request_id,
                worker=self._worker,
                prompt_tokens=prompt_tokens,
                queue_ms=self.queue_ms,
            )
        )

    def delta(
        self,
        *,
        choice: int = 0,
        text: str = "",
        reasoning: str = "",
        tokens: int = 0,
        logprobs: list[TokenLogprob] | None = None,
        tool_calls: list[ToolCallDelta] | None = None,
        finish_reason: FinishReason | None = None,
    ) -> None:
        self._begin()
        self._put(
            Delta(
                request_id=self._work.request_id,
                choice=choice,
                text=text,
                reasoning=reasoning,
                tokens=tokens,
                logprobs=logprobs,
                tool_calls=tool_calls or [],
                finish_reason=finish_reason,
            )
        )

    def completed(self, *, usage: Usage, timing: Timing, output: Output | None = None) -> None:
        self._begin()
        timing.queue_ms += self.queue_ms
        timing.payload_fetch_ms += self.payload_fetch_ms
        self._put(
            Completed(
                request_id=self._work.request_id,
                worker=self._worker,
                usage=usage,
                timing=timing,
                output=output,
                bundle_config_hash=self.bundle_config_hash,
                execution_identity=self.execution_identity,
            )
        )
        self.ended = True

    def failed(
        self,
        code: FailureCode,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        details: dict[str, object] | None = None,
    ) -> None:
        """End with a failure; nothing happens if the attempt has ended."""
        if self.ended:
            return
        self.fault = code
        self._put(
            Failed(
                request_id=self._work.request_id,
                code=code,
                message=message,
                param=param,
                retry_after=retry_after,
                details=details or {},
            )
        )
        self.ended = True

    def _begin(self) -> None:
        if not self.begun:
            self.begun = True
            self._on_begun()

    def _put(self, event: AnyEvent) -> None:
        if self.ended:
            raise RuntimeError("an engine answered after its last event")
        event.attempt_id = self._attempt
        event.seq = self._seq
        self._seq += 1
        self._send(self._work.reply_subject, event)


def attempt_id(attempt: int) -> str:
    """A new id for a try at one publication of a request, unlike those of all workers."""
    return f"{attempt}-{_PROCESS}{next(_tries):x}"

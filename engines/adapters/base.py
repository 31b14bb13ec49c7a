"""What an engine adapter provides and what the worker gives it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ..protocol.events import FailureCode, FinishReason, Output, Timing, TokenLogprob, ToolCallDelta, Usage
from ..protocol.work import Work


class EngineStatus(msgspec.Struct, kw_only=True):
    """Load of one engine: requests waiting, batches running, their cost in tokens, resident bytes.

    ``cache_tokens`` is how many tokens its key-value cache holds, 0 where it has none.
    ``metrics`` are further samples by name; a name that ends in ``_total`` is a counter, any other a gauge.
    """

    queue_depth: int = 0
    inflight_batches: int = 0
    pending_cost: int = 0
    memory_bytes: int = 0
    cache_tokens: int = 0
    metrics: dict[str, float] = {}


class WorkError(Exception):
    """Work that cannot be done, in the terms of the protocol. Becomes a ``Failed`` event."""

    def __init__(
        self,
        code: FailureCode,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        details: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.details = details or {}


class EngineDead(WorkError):
    """The engine cannot do this or any other work; the worker has to discard it and load a new one."""

    def __init__(self, message: str) -> None:
        super().__init__("transport_failure", message)


class EngineLoadError(Exception):
    """The model cannot be served. ``permanent``: trying again cannot help (missing files, unsupported architecture)."""

    def __init__(self, message: str, *, error_class: str, permanent: bool) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.permanent = permanent


class Reply(Protocol):
    """Where an engine puts its answer. The worker adds ids, numbers the events and sends them in batches.

    None of the methods blocks. ``admitted`` comes first, ``completed`` last; an engine that cannot go on raises
    ``WorkError`` instead.
    """

    def admitted(self, *, prompt_tokens: int = 0) -> None: ...

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
    ) -> None: ...

    def completed(self, *, usage: Usage, timing: Timing, output: Output | None = None) -> None: ...


class Engine(Protocol):
    """One loaded (model, profile). Methods run on the event loop of the worker, heavy work elsewhere."""

    async def load(self) -> None:
        """Load the weights, reporting progress in the log.

        Raises:
            EngineLoadError: the model cannot be served.
        """
        ...

    async def run(self, work: Work, reply: Reply) -> None:
        """Do one work item. Cancelling the task aborts the work within one engine step.

        Raises:
            WorkError: the work cannot be done.
        """
        ...

    def status(self) -> EngineStatus: ...

    async def close(self) -> None:
        """Free everything: threads, child processes, memory. Bounded in time."""
        ...

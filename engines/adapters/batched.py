"""The common part of engines that run behind the batching engine: their load, their answers, their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..batching import Batcher, Closed, Done, OutOfMemory, Overloaded
from ..protocol.catalog import ModelEntry, Profile
from ..protocol.events import Output, Timing, Usage
from .base import EngineDead, EngineStatus, Reply, WorkError


class BatchedEngine:
    """One loaded model behind a batcher, which ``load`` of a subclass makes and starts."""

    def __init__(self, entry: ModelEntry, profile: Profile) -> None:
        self.entry = entry
        self.profile = profile
        self.memory_bytes = 0
        self._batcher: Batcher | None = None

    def status(self) -> EngineStatus:
        """Load of the batcher."""
        if self._batcher is None:
            return EngineStatus()
        load = self._batcher.load()
        return EngineStatus(
            queue_depth=load.requests,
            inflight_batches=load.running,
            pending_cost=load.pending_tokens,
            memory_bytes=self.memory_bytes,
            metrics=self._batcher.metrics(),
        )

    async def close(self) -> None:
        """Stop the threads."""
        if self._batcher is not None:
            await self._batcher.close()
        self._batcher = None

    async def submit(self, inputs: Sequence[Any], finish: Any, reply: Reply, *, images: int = 0) -> None:
        """Run ``inputs``, of which ``images`` are images, and answer with what ``finish`` makes of their rows.

        Raises:
            WorkError: ``RESOURCE_EXHAUSTED``.
            EngineDead: a thread of the batcher has ended.
        """
        assert self._batcher is not None, "load() comes first"
        try:
            waiting = self._batcher.submit(inputs, finish)
            reply.admitted()
            done: Done[Output] = await waiting
        except Overloaded as error:
            raise WorkError("RESOURCE_EXHAUSTED", str(error), retry_after=error.retry_after) from None
        except OutOfMemory as error:
            raise WorkError("RESOURCE_EXHAUSTED", str(error), retry_after=5.0) from None
        except Closed as error:
            raise EngineDead(f"the engine of model {self.entry.name!r}: {error}") from None
        timing = Timing(
            queue_ms=done.queue_ms,
            tokenization_ms=done.tokenization_ms,
            inference_ms=done.inference_ms,
            postprocessing_ms=done.postprocessing_ms,
            total_ms=done.total_ms,
        )
        reply.completed(usage=Usage(prompt_tokens=sum(done.tokens), images=images), timing=timing, output=done.value)

"""The cluster as handlers see it: workers, the state of models, and the way to submit work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol

import msgspec

from .events import AnyEvent
from .work import Work

ModelState = Literal["available", "loading", "loaded", "failed"]


class ModelStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    """State of one model on one worker, or over all of them."""

    name: str
    state: ModelState
    last_error: str | None = None


class WorkerStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A worker's heart-beat. ``models`` lists what it has tried to load; memory is in bytes."""

    name: str
    pool: str = "default"
    machine_profile: str = "cpu"
    gpu_count: int = 0
    bundle: str = "default"
    bundle_config_hash: str = ""
    models: list[ModelStatus] = []
    queue_depth: int = 0
    inflight_batches: int = 0
    pending_cost: int = 0
    memory_used_bytes: int = 0
    memory_total_bytes: int = 0
    healthy: bool = True
    at: float = 0.0


class Timeouts(msgspec.Struct, frozen=True):
    """Limits in seconds. ``first_chunk`` runs until the first event after admission, ``inter_chunk`` between events."""

    overall: float
    first_chunk: float | None = None
    inter_chunk: float | None = None


class Route(msgspec.Struct, kw_only=True, frozen=True):
    """Where work goes."""

    pool: str = "default"
    machine_profile: str | None = None


class DispatchError(Exception):
    """Work could not be handed to the cluster. ``retry_after`` is in seconds, ``None`` when a retry is no use."""

    def __init__(
        self, code: Literal["provisioning", "backpressure", "queue_unavailable"], message: str, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after


class Answer(Protocol):
    """The events of one submitted work item, in order, ending with ``Completed`` or ``Failed``.

    Timeouts and a lost worker arrive as ``Failed``. Closing before the end cancels the work on the worker.
    """

    publish_ms: float

    def __aiter__(self) -> AsyncIterator[AnyEvent]: ...

    async def aclose(self) -> None: ...


class Dispatcher(Protocol):
    """Hands work to the workers of a pool."""

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Answer:
        """Publish ``work`` and return its answer.

        Raises:
            DispatchError: the queue refused it.
        """
        ...


class ClusterView(Protocol):
    """What is known of the workers, updated by their heart-beats."""

    @property
    def connected(self) -> bool:
        """Whether the message bus is reachable now."""
        ...

    def workers(self) -> Sequence[WorkerStatus]:
        """Workers heard from lately, sorted by name; a stale one is listed with ``healthy`` false, then dropped."""
        ...

    def model_status(self, name: str) -> ModelStatus:
        """State of a model over all healthy workers: loaded beats loading beats failed beats available."""
        ...

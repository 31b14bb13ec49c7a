"""The cluster as handlers see it: workers, the state of models, and the way to submit work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
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
    """A worker's heart-beat. ``models`` lists what it has tried to load; memory is in bytes.

    ``room`` is how many more requests it would take from its own queue now (0 while it has none).
    ``metrics`` are samples by model and name, those of the worker itself under the empty name; a name that ends in
    ``_total`` is a counter, any other a gauge.
    """

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
    room: int = 0
    memory_used_bytes: int = 0
    memory_total_bytes: int = 0
    healthy: bool = True
    at: float = 0.0
    requests: int = 0
    tokens: int = 0
    metrics: dict[str, dict[str, float]] = {}


class Traffic(msgspec.Struct, kw_only=True, frozen=True):
    """What all healthy workers did a second lately: requests completed, tokens generated."""

    requests: float = 0.0
    tokens: float = 0.0


class BusCounts(msgspec.Struct, kw_only=True):
    """What one gateway has done with its bus since it started.

    ``payload_offloads``: work too large for a message. ``republished``: work given to other workers after it was
    published. ``inbox_skips``: events that nobody waited for. ``undecodable``: messages of workers that make no sense.
    """

    payload_offloads: int = 0
    republished: int = 0
    inbox_skips: int = 0
    undecodable: int = 0


class PendingGenerations(msgspec.Struct, kw_only=True):
    """Open generations of one gateway for one model and pool.

    ``waiting_first_chunk`` have had no output yet, ``active_streams`` have; ``republished`` were taken up more than
    once; ``oldest_ms`` is the age of the oldest.
    """

    model: str
    profile: str
    pool: str
    count: int = 0
    active_streams: int = 0
    waiting_first_chunk: int = 0
    republished: int = 0
    oldest_ms: int = 0


class Timeouts(msgspec.Struct, frozen=True):
    """Limits in seconds. ``first_chunk`` runs until the first event after admission, ``inter_chunk`` between events."""

    overall: float
    first_chunk: float | None = None
    inter_chunk: float | None = None


class Route(msgspec.Struct, kw_only=True, frozen=True):
    """Where work goes: to workers of ``machine_profile``, else of any of ``machine_profiles``, else to any worker."""

    pool: str = "default"
    machine_profile: str | None = None
    machine_profiles: tuple[str, ...] = ()

    def allows(self, machine_profile: str) -> bool:
        """Whether workers of a machine profile may do the work."""
        wanted = self.machine_profiles if self.machine_profile is None else (self.machine_profile,)
        return not wanted or machine_profile.lower() in {profile.lower() for profile in wanted}


class DispatchError(Exception):
    """Work could not be handed to the cluster. ``retry_after`` is in seconds, ``None`` when a retry is no use."""

    def __init__(
        self,
        code: Literal["provisioning", "backpressure", "queue_unavailable"],
        message: str,
        retry_after: float | None = None,
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

    def dead_letters(self) -> Mapping[tuple[str, str], int]:
        """Work given up for good, counted by model and reason. Each is counted by one gateway of the cluster."""
        ...

    def bus_counts(self) -> BusCounts:
        """What this gateway has done with its bus."""
        ...

    def traffic(self) -> Traffic:
        """Rates over the last seconds, from the workers' own counts."""
        ...

    def pending_generations(self) -> Sequence[PendingGenerations]:
        """Open generations of this gateway, sorted by model, profile and pool."""
        ...

"""Liveness, readiness and the state of the cluster (contract L)."""

from __future__ import annotations

from collections.abc import Sequence

from engines.protocol.cluster import ModelState, WorkerStatus
from generated.sie import models
from generated.sie.interfaces import Context

from . import pending
from .services import Services
from .surface import Surface
from .workers import worker_info

_BEST: Sequence[ModelState] = ("loaded", "loading", "failed", "available")


class HealthSurface(Surface):
    """``/healthz``, ``/readyz``, ``/health``."""

    async def healthz(self, context: Context) -> bytes:
        """The process answers."""
        return b"ok"

    async def readyz(self, context: Context) -> bytes:
        """The gateway takes requests. The document wants 200 even without a worker: a cluster scales from zero."""
        return b"ok"

    async def health(self, context: Context) -> models.HealthResponse:
        """The cluster as its heart-beats tell it."""
        return snapshot(self.services)


def snapshot(services: Services) -> models.HealthResponse:
    """State of the cluster; ``healthy`` when any worker is."""
    workers = services.cluster.workers()
    healthy = [worker for worker in workers if worker.healthy]
    loaded = {m.name for worker in healthy for m in worker.models if m.state == "loaded"}
    return models.HealthResponse(
        status="healthy" if healthy else "degraded",
        type="gateway",
        configured_gpu_types=list(services.settings.gpu_types),
        live_gpu_types=sorted({worker.machine_profile for worker in healthy}),
        cluster=models.ClusterSummary(
            worker_count=len(healthy),
            gpu_count=sum(worker.gpu_count for worker in healthy),
            models_loaded=len(loaded),
            total_qps=round(services.cluster.traffic().requests, 3),
        ),
        workers=[worker_info(worker) for worker in workers],
        models=_models(healthy),
        pending_generation=pending.snapshot(services.cluster),
    )


def _models(workers: Sequence[WorkerStatus]) -> list[models.ModelInfo]:
    """Every model that a worker has tried to load, sorted by name, in its best state."""
    seen: dict[str, list[tuple[ModelState, WorkerStatus]]] = {}
    for worker in workers:
        for status in worker.models:
            seen.setdefault(status.name, []).append((status.state, worker))
    return [
        models.ModelInfo(
            name=name,
            state=min((state for state, _ in places), key=_BEST.index),
            worker_count=len(places),
            gpu_types=sorted({worker.machine_profile for _, worker in places}),
            total_queue_depth=sum(worker.queue_depth for _, worker in places),
        )
        for name, places in sorted(seen.items())
    ]

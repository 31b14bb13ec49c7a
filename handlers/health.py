"""Liveness, readiness and the state of the cluster (contract L)."""

from __future__ import annotations

from collections.abc import Sequence

from engines.protocol.cluster import ModelState, WorkerStatus
from generated.sie import models
from generated.sie.interfaces import Context

from .surface import Surface

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
        return snapshot(self.services.cluster.workers(), self.services.settings.gpu_types)


def snapshot(workers: Sequence[WorkerStatus], configured: Sequence[str]) -> models.HealthResponse:
    """State of the cluster; ``healthy`` when any worker is."""
    healthy = [worker for worker in workers if worker.healthy]
    loaded = {m.name for worker in healthy for m in worker.models if m.state == "loaded"}
    return models.HealthResponse(
        status="healthy" if healthy else "degraded",
        type="gateway",
        configured_gpu_types=list(configured),
        live_gpu_types=sorted({worker.machine_profile for worker in healthy}),
        cluster=models.ClusterSummary(
            worker_count=len(healthy),
            gpu_count=sum(worker.gpu_count for worker in healthy),
            models_loaded=len(loaded),
            total_qps=0.0,
        ),
        workers=[_worker(worker) for worker in workers],
        models=_models(healthy),
        pending_generation=models.PendingGenerationSnapshot(total=0, groups=[]),
    )


def _worker(worker: WorkerStatus) -> models.WorkerInfo:
    return models.WorkerInfo(
        name=worker.name,
        url=f"nats://{worker.name}",
        gpu=worker.machine_profile,
        gpu_count=worker.gpu_count,
        ready_gpu_slots=worker.gpu_count if worker.healthy else 0,
        loaded_models=[m.name for m in worker.models if m.state == "loaded"],
        queue_depth=worker.queue_depth,
        pending_cost=worker.pending_cost,
        inflight_batches=worker.inflight_batches,
        memory_used_bytes=worker.memory_used_bytes,
        memory_total_bytes=worker.memory_total_bytes,
        healthy=worker.healthy,
        bundle=worker.bundle,
        bundle_config_hash=worker.bundle_config_hash,
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

"""Workers as the document has them."""

from __future__ import annotations

from engines.protocol.cluster import WorkerStatus
from generated.sie import models


def worker_url(worker: WorkerStatus) -> str:
    """Workers are reached by their queue, not by an address: the name is what tells them apart."""
    return f"nats://{worker.name}"


def worker_info(worker: WorkerStatus) -> models.WorkerInfo:
    """A worker's last heart-beat."""
    return models.WorkerInfo(
        name=worker.name,
        url=worker_url(worker),
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

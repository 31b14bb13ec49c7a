"""Pools as the document has them."""

from __future__ import annotations

import time

from engines.protocol.pools import PoolRecord, PoolSpec, status
from generated.sie import models

from ..services import Services
from ..workers import worker_url
from .known import static_pools


def pool(services: Services, record: PoolRecord) -> models.Pool:
    """A pool with its state of this moment."""
    now = status(record, services.cluster.workers(), time.time())
    return models.Pool(
        spec=_spec(record.spec),
        status=models.PoolStatus(
            state=now.state,
            assigned_workers=[
                models.AssignedWorker(
                    name=worker.name,
                    url=worker_url(worker),
                    gpu=worker.machine_profile,
                    bundle=worker.bundle,
                )
                for worker in now.workers
            ],
            created_at=record.created_at,
            last_renewed=record.last_renewed,
        ),
    )


def pools_frame(services: Services) -> list[models.Pool]:
    """All pools: the operator's, the default one first, then those that were created, by name."""
    static = static_pools(services)
    names = {record.spec.name for record in static}
    created = [record for record in services.pools.all() if record.spec.name not in names]
    return [pool(services, record) for record in (*static, *created)]


def _spec(spec: PoolSpec) -> models.PoolSpec:
    return models.PoolSpec(
        name=spec.name,
        queue_pool=spec.queue_pool,
        bundle=spec.bundle,
        gpus=dict(spec.gpus),
        gpu_caps=dict(spec.gpu_caps),
        ttl_seconds=spec.ttl_seconds,
        minimum_worker_count=spec.minimum_worker_count,
        pinned_models=list(spec.pinned_models),
    )

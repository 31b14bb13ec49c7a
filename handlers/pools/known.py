"""The operator's own pools: the queues that workers serve or are declared to serve. Shown, never changed."""

from __future__ import annotations

from engines.protocol.pools import DEFAULT_POOL, PoolRecord, static_record

from ..services import Services


def queue_pools(services: Services) -> set[str]:
    """Names of the queues that work can wait in: the default one, those declared, those that a worker serves."""
    live = {worker.pool for worker in services.cluster.workers()}
    return {DEFAULT_POOL, *(name.lower() for name in services.settings.queue_pools), *live}


def static_pool(services: Services, name: str) -> PoolRecord | None:
    """The operator's pool of that name, in any case."""
    found = next((known for known in queue_pools(services) if known.lower() == name.lower()), None)
    return None if found is None else _record(services, found)


def static_pools(services: Services) -> list[PoolRecord]:
    """All of the operator's pools, the default one first."""
    names = sorted(queue_pools(services), key=lambda name: (name != DEFAULT_POOL, name))
    return [_record(services, name) for name in names]


def _record(services: Services, name: str) -> PoolRecord:
    live = {worker.machine_profile for worker in services.cluster.workers() if worker.pool == name}
    profiles = live.union(services.settings.gpu_types if name == DEFAULT_POOL else ())
    return static_record(name, dict.fromkeys(sorted(profiles), 0), services.started_at)

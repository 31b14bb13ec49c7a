"""What a worker is told at its start."""

from __future__ import annotations

import msgspec


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``models`` are loaded at the start, ``drain`` is in seconds, ``memory_budget`` in bytes (``None``: no limit).

    ``kv_budget`` is how many tokens generations may need together, 0: as the engines' caches allow.
    """

    name: str
    pool: str = "default"
    machine_profile: str = "cpu"
    bundle: str = "default"
    models: tuple[str, ...] = ()
    max_inflight: int = 512
    drain: float = 20.0
    memory_budget: int | None = None
    kv_budget: int = 0

"""Pools: ``/v1/pools`` and what requests are told of them (contract I)."""

from __future__ import annotations

from .surface import PoolsSurface
from .wire import pools_frame

__all__ = ["PoolsSurface", "pools_frame"]

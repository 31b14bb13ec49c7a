from __future__ import annotations

from tests.bus.conftest import cluster_of

__all__ = ["cluster_of"]

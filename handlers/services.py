"""What every surface can reach: the catalog, the cluster, the dispatcher, the settings, the pools and the lanes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from engines.protocol.catalog import CatalogView
from engines.protocol.cluster import ClusterView, Dispatcher
from engines.protocol.lanes import Lanes, NoLanes
from engines.protocol.pools import NoPools, Pools

from .limits import Limiter
from .metrics.registry import Metrics
from .settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to each surface by the composition root; tests hand in their own."""

    catalog: CatalogView
    dispatcher: Dispatcher
    cluster: ClusterView
    settings: Settings
    pools: Pools = field(default_factory=NoPools)
    lanes: Lanes = field(default_factory=NoLanes)
    started_at: float = field(default_factory=time.time)
    metrics: Metrics = field(default_factory=Metrics)
    limiter: Limiter | None = None

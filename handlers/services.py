"""What every surface can reach: the catalog, the cluster, the dispatcher and the settings."""

from __future__ import annotations

from dataclasses import dataclass

from engines.protocol.catalog import CatalogView
from engines.protocol.cluster import ClusterView, Dispatcher

from .settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to each surface by the composition root; tests hand in their own."""

    catalog: CatalogView
    dispatcher: Dispatcher
    cluster: ClusterView
    settings: Settings

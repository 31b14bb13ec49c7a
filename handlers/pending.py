"""Generations that wait for output or are streamed, as the document has them."""

from __future__ import annotations

from engines.protocol.catalog import variant
from engines.protocol.cluster import ClusterView
from generated.sie import models


def snapshot(cluster: ClusterView, model: str | None = None) -> models.PendingGenerationSnapshot:
    """Open generations of this gateway by model and pool; of one model only where it is named."""
    groups = [group for group in cluster.pending_generations() if model is None or group.model == model]
    return models.PendingGenerationSnapshot(
        total=sum(group.count for group in groups),
        groups=[
            models.PendingGenerationGroup(
                model=group.model,
                display_model=variant(group.model, group.profile),
                pool=group.pool,
                count=group.count,
                active_streams=group.active_streams,
                waiting_first_chunk=group.waiting_first_chunk,
                republished=group.republished,
                oldest_request_age_ms=group.oldest_ms,
            )
            for group in groups
        ],
    )

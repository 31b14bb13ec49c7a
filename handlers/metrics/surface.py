"""``/metrics``: an addition to the document, in the group of operations that operators can exempt from tokens."""

from __future__ import annotations

from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from generated.sie.interfaces import Context

from ..surface import Surface

METRICS_PATH: Final = "/metrics"


class MetricsSurface(Surface):
    """The gateway's series and the workers', for Prometheus."""

    async def metrics(self, context: Context) -> bytes:
        """All series as text."""
        context.media_type = CONTENT_TYPE_PLAIN_0_0_4
        return self.services.metrics.render()

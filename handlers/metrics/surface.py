"""``/metrics``: an addition to the document, in the group of operations that operators can exempt from tokens."""

from __future__ import annotations

from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from generated.sie.interfaces import Context

from ..services import Services
from ..surface import Surface
from .autoscaling import Autoscaling

METRICS_PATH: Final = "/metrics"


class MetricsSurface(Surface):
    """The gateway's series and the workers', for Prometheus."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._autoscaling = Autoscaling(services)
        services.metrics.registry.register(self._autoscaling)

    async def metrics(self, context: Context) -> bytes:
        """All series as text."""
        await self._autoscaling.refresh()
        context.media_type = CONTENT_TYPE_PLAIN_0_0_4
        return self.services.metrics.render()

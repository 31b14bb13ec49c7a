"""What the limits do, in ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .limiter import Limiter


class LimitsCollector(Collector):
    """Who was refused by which limit, and how much work this gateway has taken on."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "sie_gateway_pending_tokens", "Estimated tokens of the requests that run", value=self._limiter.tokens
        )
        family = CounterMetricFamily(
            "sie_gateway_limited_requests",
            "Requests over a limit: of their token (rate, requests, tokens) or of the gateway",
            labels=["limit"],
        )
        for limit, count in sorted(self._limiter.refused.items()):
            family.add_metric([limit], float(count))
        yield family

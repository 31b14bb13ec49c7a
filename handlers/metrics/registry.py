"""The gateway's series, in one registry of ``prometheus_client``, which writes the text.

Litestar's Prometheus middleware is not used: it takes labels before a request is answered, so it cannot know the model
of a body, it has no route for what no route takes, and it costs a ``Request`` and three look-ups by label a request.
Nor is its controller: it writes ``prometheus_client``'s global registry and no other, outside of the guard's envelopes.
Names are the origin's where it has them (contract L). Labels are route templates, methods, statuses and models of the
catalog, never anything that a client made up.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from .demand import Demand
from .series import Count, Counter, Distribution, Gauge, Histogram
from .throughput import Throughput

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})
_LATENCY: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_TOKEN: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.25, 2.5)
_SHORT: Final = (0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0)


class ModelSeries:
    """The series of one model, looked up once."""

    __slots__ = ("cached", "completion", "first", "inter", "prompt", "stages", "wait")

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.first = metrics.time_to_first_token.labels(model)
        self.inter = metrics.inter_token.labels(model)
        self.wait = metrics.result_wait.labels(model)
        self.prompt = metrics.tokens.labels(model, "prompt")
        self.completion = metrics.tokens.labels(model, "completion")
        self.cached = metrics.tokens.labels(model, "cached_prompt")
        self.stages = {
            stage: metrics.stages.labels(model, stage)
            for stage in ("queue", "tokenization", "inference", "postprocessing", "payload_fetch")
        }


class Metrics:
    """All series of one gateway. Its methods belong to the event loop."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()
        self.throughput: Final = Throughput()
        ProcessCollector(registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            made = Counter(f"sie_gateway_{name}", text, labels)
            self.registry.register(made)
            return made

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            made = Histogram(f"sie_gateway_{name}", text, buckets, labels)
            self.registry.register(made)
            return made

        request = ("method", "route", "status", "model")
        self.requests = counter("requests", "Requests answered, by route template", *request)
        self.latency = histogram("request_latency_seconds", "From request to the last byte", _LATENCY, *request)
        open_now = Gauge("sie_gateway_requests_open", "Requests that run now")
        self.registry.register(open_now)
        self.open = open_now.count
        self.rejected = counter("rejected_requests", "Requests that the queue did not take", "reason")
        self.provisioning = counter("provisioning_responses", "Requests for which no worker was there").labels()
        self.pool_events = counter("pool_events", "Changes of pools that this gateway was asked for", "event")
        self.published = counter("queue_items_published", "Work items handed to the queue").labels()
        self.publish = histogram("queue_publish_seconds", "Until the queue has confirmed a work item", _SHORT).labels()
        self.result_wait = histogram("queue_result_wait_seconds", "From submission to the result", _LATENCY, "model")
        self.time_to_first_token = histogram(
            "time_to_first_token_seconds", "From submission to the first token of a stream", _LATENCY, "model"
        )
        self.inter_token = histogram("inter_token_seconds", "Between two deltas of a stream", _TOKEN, "model")
        self.tokens = counter("tokens", "Tokens counted by the models' own tokenizers", "model", "kind")
        self.stages = histogram("worker_stage_seconds", "Time of a request on its worker", _LATENCY, "model", "stage")
        self.lag = histogram("event_loop_lag_seconds", "How late the event loop runs its timers", _SHORT).labels()
        self.demand: Final = Demand()
        self._answered: dict[tuple[str, str, int, str], tuple[Count, Distribution]] = {}
        self._series: dict[str, ModelSeries] = {}
        self._models: dict[str, str] = {}

    def began(self) -> None:
        """A request has come in."""
        self.open.inc()

    def ended(self, method: str, route: str, status: int, seconds: float, request_id: str) -> None:
        """A request has been answered. ``route`` is a template of the document or empty; 101 is a WebSocket's end."""
        self.open.inc(-1)
        model = self._models.pop(request_id, "")
        key = (method, route, status, model)
        try:
            count, latency = self._answered[key]
        except KeyError:
            labels = (method if method in METHODS else "other", route, str(status), model)
            count, latency = self.requests.labels(*labels), self.latency.labels(*labels)
            if method in METHODS:
                self._answered[key] = count, latency
        count.inc()
        if status != 101:
            latency.observe(seconds)
        if model:
            self.throughput.request(seconds, status)

    def of_model(self, request_id: str, model: str) -> ModelSeries:
        """The series of ``model``, which the catalog knows; from now on ``request_id`` counts as a request for it."""
        self._models[request_id] = model
        series = self._series.get(model)
        if series is None:
            series = self._series[model] = ModelSeries(self, model)
        return series

    def render(self) -> bytes:
        """Everything as Prometheus text, version 0.0.4."""
        return generate_latest(self.registry)

"""The series that a gateway really has: every family of ``/metrics`` with samples in it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from litestar.testing import TestClient
from prometheus_client.parser import text_string_to_metric_families

import app
from engines.protocol.cluster import DispatchError, ModelStatus, WorkerStatus
from engines.protocol.lanes import LaneLoad
from engines.protocol.pools import PoolRecord, PoolSpec
from handlers.http.access import AccessLog
from handlers.services import Services
from handlers.settings import Settings
from tests.http.fakes import FakeCatalog
from tests.metrics.test_series import CHAT, Answering
from tests.pools.fakes import FakeCluster, MemoryPools


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class Cluster(FakeCluster):
    """Has given up some work."""

    def dead_letters(self) -> Mapping[tuple[str, str], int]:
        return {("org/chat", "max_deliveries"): 2}


class Lanes:
    def __init__(self, *loads: LaneLoad) -> None:
        self._loads = loads

    async def load(self) -> Sequence[LaneLoad]:
        return self._loads


def scrape(
    *loads: LaneLoad, pools: Sequence[PoolSpec] = (), refused: Sequence[str] = (), **settings: Any
) -> list[Sample]:
    """What a gateway with one worker, these lanes and pools shows.

    It has answered one stream, and refused a request for each of ``refused``, which are values of the routing header
    ``X-SIE-MACHINE-PROFILE``, for want of a worker.
    """
    models = [ModelStatus(name="org/chat", state="loaded")]
    worker = WorkerStatus(name="w1", models=models, metrics={"": {"event_loop_lag_seconds": 0.01}})
    store, now = MemoryPools(), time.time()
    store.records = {spec.name: PoolRecord(spec=spec, created_at=now, last_renewed=now) for spec in pools}
    dispatcher = Answering()
    services = Services(FakeCatalog(), dispatcher, Cluster(worker), Settings(**settings), store, Lanes(*loads))
    with TestClient(app.create_app(services, AccessLog(None))) as client:
        assert client.post("/v1/chat/completions", json=CHAT | {"stream": True}).status_code == 200
        dispatcher.refusal = DispatchError("provisioning", "no worker yet", retry_after=60)
        for profile in refused:
            headers = {"X-SIE-MACHINE-PROFILE": profile}
            assert client.post("/v1/chat/completions", json=CHAT, headers=headers).status_code == 503
        client.get("/metrics")  # counts itself from the next one on
        text = client.get("/metrics").text
    return [
        Sample(sample.name, dict(sample.labels), float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


class Query(NamedTuple):
    """What a PromQL expression reads (selectors with name and matchers) and the labels that its aggregations keep."""

    selectors: list[Any]
    kept: set[str]


def query(expression: str) -> Query:
    """Parse an expression. Grafana's variables are filled in.

    Raises:
        ValueError: it is none.
    """
    promql = import_module("promql_parser")
    found = Query([], set())

    def visit(node: Any) -> None:
        if isinstance(node, promql.VectorSelector):
            found.selectors.append(node)
        elif isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            found.kept.update(node.modifier.labels)

    promql.walk(promql.parse(expression.replace("$__rate_interval", "1m").replace("$job", ".*")), visit)
    return found


def matches(selector: Any, sample: Sample) -> bool:
    """Whether a selector takes a sample. A label that is absent is empty."""
    tests = {
        "=": lambda has, wants: has == wants,
        "!=": lambda has, wants: has != wants,
        "=~": lambda has, wants: re.fullmatch(wants, has) is not None,
        "!~": lambda has, wants: re.fullmatch(wants, has) is None,
    }
    return selector.name == sample.name and all(
        tests[operator(matcher)](sample.labels.get(matcher.name, ""), matcher.value)
        for matcher in selector.matchers.matchers
    )


def operator(matcher: Any) -> str:
    written = re.match(r"\w+(=~|!~|!=|=)", str(matcher))
    assert written is not None
    return written[1]

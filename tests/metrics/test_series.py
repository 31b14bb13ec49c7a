"""The series of ``/metrics``: they exist, they count what happened, and a client cannot make more of them."""

from __future__ import annotations

import random
import string
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client.parser import text_string_to_metric_families

import app
from engines.protocol.cluster import Answer, DispatchError, ModelStatus, Route, Timeouts, WorkerStatus
from engines.protocol.events import Admitted, AnyEvent, Completed, Delta, Timing, Usage
from engines.protocol.work import GenerateWork, Work
from handlers.http.access import AccessLog
from handlers.metrics import Metrics
from handlers.metrics.throughput import Throughput
from handlers.services import Services
from handlers.settings import Settings
from tests.http.fakes import FakeCatalog, FakeCluster

EXPECTED = {
    "sie_gateway_requests",
    "sie_gateway_request_latency_seconds",
    "sie_gateway_requests_open",
    "sie_gateway_rejected_requests",
    "sie_gateway_provisioning_responses",
    "sie_gateway_queue_items_published",
    "sie_gateway_queue_publish_seconds",
    "sie_gateway_queue_result_wait_seconds",
    "sie_gateway_time_to_first_token_seconds",
    "sie_gateway_inter_token_seconds",
    "sie_gateway_tokens",
    "sie_gateway_worker_stage_seconds",
    "sie_gateway_event_loop_lag_seconds",
    "sie_gateway_nats_connected",
    "sie_gateway_config_epoch",
    "sie_gateway_config_deltas",
    "sie_gateway_queue_payload_offloads",
    "sie_gateway_queue_republished",
    "sie_gateway_queue_inbox_skips",
    "sie_gateway_queue_undecodable",
    "sie_gateway_dead_letters",
    "sie_gateway_pool_events",
    "sie_gateway_active_lease_gpus",
    "sie_gateway_workers",
    "sie_gateway_worker_queue_depth",
    "sie_gateway_worker_memory_used_bytes",
    "sie_gateway_model_workers",
    "sie_gateway_pending_demand",
    "sie_gateway_lane_queue_depth",
    "sie_gateway_lane_unacknowledged",
    "sie_gateway_pool_warm_floor",
    "sie_gateway_pool_pinned_models",
    "sie_gateway_pool_pinned_models_loaded",
    "sie_gateway_pending_generations",
    "sie_worker_batches",
    "sie_worker_batch_padded_tokens",
    "sie_worker_event_loop_lag_seconds",
    "process_cpu_seconds",
}
CHAT = {"model": "org/chat", "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 8}


class Canned:
    """A generation of three tokens."""

    publish_ms = 0.4

    def __init__(self, work: Work) -> None:
        self._work = work

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        assert isinstance(self._work, GenerateWork)
        rid = self._work.request_id
        yield Admitted(request_id=rid, worker="w1", prompt_tokens=5)
        for seq in range(3):
            yield Delta(request_id=rid, seq=seq, text="a", tokens=1, finish_reason="stop" if seq == 2 else None)
        timing = Timing(queue_ms=2.0, inference_ms=30.0, tokenization_ms=1.0)
        yield Completed(
            request_id=rid, usage=Usage(prompt_tokens=5, completion_tokens=3, cached_tokens=2), timing=timing
        )

    async def aclose(self) -> None:
        pass


class Answering:
    """A dispatcher that answers with three tokens, or refuses with ``refusal``."""

    refusal: DispatchError | None = None

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Answer:
        if self.refusal is not None:
            raise self.refusal
        return Canned(work)


class Counting(FakeCluster):
    """Its worker tells what it counted."""

    def workers(self) -> Any:
        samples = {
            "org/vectors": {"batches_total": 7.0, "batch_tokens_total": 90.0, "batch_padded_tokens_total": 120.0},
            "": {"event_loop_lag_seconds": 0.01},
        }
        return (WorkerStatus(name="w1", models=[ModelStatus(name="org/chat", state="loaded")], metrics=samples),)


@pytest.fixture
def dispatcher() -> Answering:
    return Answering()


@pytest.fixture
def http(dispatcher: Answering) -> Iterator[TestClient[Litestar]]:
    services = Services(FakeCatalog(), dispatcher, Counting(), Settings())
    with TestClient(app.create_app(services, AccessLog(None)), raise_server_exceptions=False) as client:
        yield client


def families(http: TestClient[Litestar]) -> dict[str, Any]:
    response = http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(response.text)}


def value(http: TestClient[Litestar], name: str, **labels: str) -> float:
    """The sample of that name whose labels include these."""
    found = [
        sample.value
        for family in families(http).values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(found) == 1, (name, labels, found)
    return float(found[0])


def test_every_series_is_there(http: TestClient[Litestar]) -> None:
    assert families(http).keys() >= EXPECTED


def test_a_stream_is_counted_with_its_model_tokens_and_times(http: TestClient[Litestar]) -> None:
    assert http.post("/v1/chat/completions", json=CHAT | {"stream": True}).status_code == 200
    request = {"method": "POST", "route": "/v1/chat/completions", "status": "200", "model": "org/chat"}
    assert value(http, "sie_gateway_requests_total", **request) == 1
    assert value(http, "sie_gateway_request_latency_seconds_count", **request) == 1
    assert value(http, "sie_gateway_time_to_first_token_seconds_count", model="org/chat") == 1
    assert value(http, "sie_gateway_inter_token_seconds_count", model="org/chat") == 2
    kinds = {"prompt": 5, "completion": 3, "cached_prompt": 2}
    for kind, count in kinds.items():
        assert value(http, "sie_gateway_tokens_total", model="org/chat", kind=kind) == count
    assert value(http, "sie_gateway_worker_stage_seconds_sum", model="org/chat", stage="inference") == pytest.approx(
        0.03
    )
    assert value(http, "sie_gateway_queue_publish_seconds_sum") == pytest.approx(0.0004)
    assert value(http, "sie_gateway_requests_open") == 1  # the one that reads this


def test_an_answer_in_one_piece_has_no_time_to_first_token(http: TestClient[Litestar]) -> None:
    assert http.post("/v1/chat/completions", json=CHAT).status_code == 200
    assert value(http, "sie_gateway_time_to_first_token_seconds_count", model="org/chat") == 0
    assert value(http, "sie_gateway_queue_result_wait_seconds_count", model="org/chat") == 1


@pytest.mark.parametrize("code", ["provisioning", "backpressure"])
def test_refusals_of_the_queue_are_counted_by_reason(
    http: TestClient[Litestar], dispatcher: Answering, code: Any
) -> None:
    dispatcher.refusal = DispatchError(code, "no", retry_after=5)
    assert http.post("/v1/chat/completions", json=CHAT).status_code == 503
    assert value(http, "sie_gateway_rejected_requests_total", reason=code) == 1
    assert value(http, "sie_gateway_provisioning_responses_total") == (code == "provisioning")
    if code == "provisioning":
        assert value(http, "sie_gateway_pending_demand", pool="default", machine_profile="", bundle="default") == 1


def test_the_bus_of_this_gateway_is_counted(http: TestClient[Litestar]) -> None:
    assert value(http, "sie_gateway_queue_payload_offloads_total") == 2
    assert value(http, "sie_gateway_queue_inbox_skips_total") == 0


def test_workers_own_counts_carry_worker_and_model(http: TestClient[Litestar]) -> None:
    assert value(http, "sie_worker_batches_total", worker="w1", model="org/vectors") == 7
    assert value(http, "sie_worker_event_loop_lag_seconds", worker="w1", model="") == 0.01


def test_ten_thousand_made_up_paths_and_models_add_no_series(http: TestClient[Litestar]) -> None:
    chance = random.Random(5)

    def word() -> str:
        return "".join(chance.choices(string.ascii_letters, k=12))

    def strange(count: int) -> None:
        for _ in range(count):
            name = word()
            http.get(f"/{name}")
            http.get(f"/v1/{name}/{name}")
            http.get(f"/v1/models/{name}")
            http.options(f"/v1/models/{name}")
            http.get(f"/static/{name}")
            http.request(word().upper(), "/v1/models")
            http.post("/v1/chat/completions", json=CHAT | {"model": name})
            http.post(f"/v1/encode/{name}", json={"items": [{"text": "a"}]})

    strange(1)
    http.get("/metrics")  # its own request counts from the next one on
    before = {(s.name, *sorted(s.labels.items())) for f in families(http).values() for s in f.samples}
    strange(1250)
    after = {(s.name, *sorted(s.labels.items())) for f in families(http).values() for s in f.samples}
    assert after == before


def test_metrics_are_operational_under_the_auth_rule() -> None:
    for exempt, status in ((False, 401), (True, 200)):
        settings = Settings(auth_mode="token", auth_tokens=("t",), auth_exempt_operational=exempt)
        services = Services(FakeCatalog(), Answering(), Counting(), settings)
        with TestClient(app.create_app(services, AccessLog(None))) as client:
            assert client.get("/metrics").status_code == status
            assert client.get("/metrics", headers={"authorization": "Bearer t"}).status_code == 200


def test_rates_are_of_the_last_full_seconds() -> None:
    now = 100.0
    counted = Throughput(lambda: now)
    for second in range(20):
        now = 100.0 + second
        for _ in range(3):
            counted.request(0.1 * (second + 1), 200 if second % 2 else 503)
        counted.tokens(40)
    now = 120.0
    rates = counted.rates()
    assert (rates["requests_per_s"], rates["errors_per_s"], rates["tokens_per_s"]) == (3.0, 1.5, 40.0)
    assert rates["latency_p50_ms"] == pytest.approx(1500, abs=101)
    assert rates["ttft_p50_ms"] is None
    now = 140.0
    assert counted.rates()["requests_per_s"] == 0.0
    assert counted.rates()["latency_p95_ms"] is None


def test_models_of_requests_that_ended_are_forgotten(http: TestClient[Litestar]) -> None:
    for _ in range(5):
        http.post("/v1/chat/completions", json=CHAT)
    metrics: Metrics = http.app.state.server.visits._observer
    assert metrics._models == {}

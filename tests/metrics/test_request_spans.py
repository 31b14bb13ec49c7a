"""The server's span of a request: its name and parents, what it never holds, and that it breaks no request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from litestar import Litestar
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import app
from engines.protocol import tracing
from engines.protocol.events import Admitted, AnyEvent, Delta
from engines.protocol.tracing import Tracing
from handlers.http.access import AccessLog
from handlers.services import Services
from handlers.settings import Settings
from tests.http.fakes import FakeCatalog, FakeCluster
from tests.http.test_socket import Uvicorn, wait
from tests.metrics.test_series import CHAT, Answering, Canned

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
SECRET = "never-in-a-span"


class Traced:
    """An application over a fake cluster. Its spans are kept."""

    def __init__(self, application: Litestar, traces: Tracing, spans: InMemorySpanExporter) -> None:
        self.application = application
        self._traces = traces
        self._spans = spans

    def spans(self, count: int) -> dict[str, ReadableSpan]:
        """The spans by name, of which there are ``count``."""

        def ended() -> tuple[ReadableSpan, ...]:
            self._traces.provider.force_flush()
            return self._spans.get_finished_spans()

        wait(lambda: len(ended()) >= count)
        found = {span.name: span for span in ended()}
        assert len(found) == len(ended()) == count, [span.name for span in ended()]
        return found


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Traced:
    """The parameters are the dispatcher and settings."""
    kept = InMemorySpanExporter()
    traces = Tracing("gateway", kept)
    monkeypatch.setattr(tracing, "from_env", lambda service: traces)
    settings = Settings(**getattr(request, "param", {}))
    services = Services(FakeCatalog(), Answering(), FakeCluster(), settings)
    return Traced(app.create_app(services, AccessLog(None)), traces, kept)


@pytest.fixture
def http(traced: Traced) -> Iterator[httpx.Client]:
    with Uvicorn(traced.application) as running, httpx.Client(base_url=running.url) as client:
        yield client


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_span_of_the_request_lies_between_the_callers_and_that_of_the_work(
    traced: Traced, http: httpx.Client
) -> None:
    answer = http.post("/v1/chat/completions", json=CHAT, headers=CALLER)
    assert answer.status_code == 200
    spans = traced.spans(2)
    server, work = spans["POST /v1/chat/completions"], spans["generate"]
    assert server.parent is not None and work.parent is not None and server.context is not None
    assert (server.kind, work.kind) == (SpanKind.SERVER, SpanKind.PRODUCER)
    assert f"{server.parent.trace_id:032x}-{server.parent.span_id:016x}" == f"{TRACE}-{PARENT}"
    assert work.parent.span_id == server.context.span_id
    seen = attributes(server)
    assert (seen["http.route"], seen["http.status_code"]) == ("/v1/chat/completions", 200)
    assert seen["request_id"] == answer.headers["x-request-id"] == attributes(work)["request_id"]


def test_a_stream_is_two_spans_however_many_chunks_it_has(traced: Traced, http: httpx.Client) -> None:
    assert http.post("/v1/chat/completions", json=CHAT | {"stream": True}).text.endswith("data: [DONE]\n\n")
    server = traced.spans(2)["POST /v1/chat/completions"]
    assert server.parent is None


@pytest.mark.parametrize(
    ("method", "path", "status", "name"),
    [
        ("GET", "/v1/models/org/chat", 200, "GET /v1/models/{model}"),
        ("GET", "/v1/models/org/none", 404, "GET /v1/models/{model}"),
        ("GET", "/nowhere", 404, "GET"),
        ("PROPFIND", "/nowhere", 404, "HTTP"),
        ("GET", "/v1/embeddings", 405, "GET /v1/embeddings"),
        ("OPTIONS", "/v1/embeddings", 204, "OPTIONS /v1/embeddings"),
        ("POST", "/v1/embeddings", 400, "POST /v1/embeddings"),
        ("POST", "/inflection/v1/chat/completions", 422, "POST /inflection/v1/chat/completions"),
        ("POST", "/v1/moderations", 501, "POST /v1/moderations"),
    ],
)
def test_spans_are_named_by_route(
    traced: Traced, http: httpx.Client, method: str, path: str, status: int, name: str
) -> None:
    headers = {"content-type": "application/json"}
    assert http.request(method, path, content=b"{}" if method == "POST" else b"", headers=headers).status_code == status
    (span,) = traced.spans(1).values()
    assert (span.name, attributes(span)["http.status_code"]) == (name, status)
    assert span.status.is_ok == (status < 500)


def test_a_fault_of_ours_is_an_error_in_both_spans(traced: Traced, http: httpx.Client) -> None:
    # the canned answer raises at work that is no generation
    assert http.post("/v1/embeddings", json={"model": "org/vectors", "input": "a"}).status_code == 500
    spans = traced.spans(2)
    assert not spans["POST /v1/embeddings"].status.is_ok and not spans["encode"].status.is_ok


class Endless(Canned):
    """A generation of one token that never ends."""

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        rid = self._work.request_id
        yield Admitted(request_id=rid, worker="w1", prompt_tokens=5)
        yield Delta(request_id=rid, seq=0, text="a", tokens=1)
        await asyncio.Event().wait()


def test_a_client_that_leaves_a_stream_ends_its_spans(
    traced: Traced, http: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tests.metrics.test_series.Canned", Endless)
    with http.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
        assert next(response.iter_lines()).startswith("data: ")
    spans = traced.spans(2)
    assert attributes(spans["POST /v1/chat/completions"])["http.status_code"] == 200
    assert spans["generate"].status.description == "cancelled"
    # a test before this one may have opened the root logger for INFO, where httpx tells of its requests
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


def test_nothing_of_a_caller_but_path_and_software_is_in_a_span(traced: Traced, http: httpx.Client) -> None:
    headers = {"authorization": f"Bearer {SECRET}", "cookie": SECRET, "host": f"{SECRET}.example"}
    asked = CHAT | {"messages": [{"role": "user", "content": SECRET}]}
    assert http.post(f"/v1/chat/completions?key={SECRET}", json=asked, headers=headers).status_code == 200
    for span in traced.spans(2).values():
        assert SECRET not in span.to_json()
    assert attributes(traced.spans(2)["POST /v1/chat/completions"])["http.user_agent"].startswith("python-httpx/")


async def test_bytes_that_are_no_text_are_served(traced: Traced) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"user-agent", b"\xff\\x"), (b"traceparent", b"\xff\\x"), (b"host", b"\xff\\x")]
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/v1/models", "query_string": b"\xff"}
    await traced.application(scope | {"headers": headers[:2]}, receive, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 200
    assert traced.spans(1)["GET /v1/models"].parent is None


def test_probes_have_no_span(traced: Traced, http: httpx.Client) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/v1/models"):
        assert http.get(path).status_code == 200
    traced.spans(1)


def test_a_websocket_has_a_span(traced: Traced) -> None:
    with Uvicorn(traced.application) as running:
        with connect(f"ws://127.0.0.1:{running.port}/ws/cluster-status") as socket:
            assert socket.recv(5)
        assert traced.spans(1)["WEBSOCKET /ws/cluster-status"].kind is SpanKind.SERVER


@pytest.mark.parametrize("traced", [{"auth_mode": "token", "auth_tokens": ("right",)}], indirect=True)
def test_a_refused_websocket_has_a_span(traced: Traced) -> None:
    with Uvicorn(traced.application) as running:
        with pytest.raises(InvalidStatus, match="401"):
            connect(f"ws://127.0.0.1:{running.port}/ws/cluster-status")
        traced.spans(1)


def test_the_second_contract_alone_has_spans(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEC", "inflection")
    alone = app.create_app(Services(FakeCatalog(), Answering(), FakeCluster(), Settings()), AccessLog(None))
    with Uvicorn(alone) as running:
        assert httpx.post(f"{running.url}/v1/chat/completions", json=CHAT).status_code == 200
    assert traced.spans(2).keys() == {"POST /v1/chat/completions", "generate"}

"""Traces: nothing without an endpoint, one trace over gateway and worker with it; and the worker's log lines."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from engines.protocol import tracing
from engines.protocol.cluster import DispatchError, Route, Timeouts
from engines.protocol.request import REQUEST
from engines.protocol.tracing import Tracing
from engines.protocol.work import EncodeWork, Item, Work
from engines.worker.log import JsonFormatter
from handlers.metrics import Metered, Metrics
from tests.http.driver import Exchange
from tests.http.fakes import operation, server
from tests.live import EMBEDDING_MODEL, ROOT, Server

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WORK = EncodeWork(request_id="r1", model="org/vectors", items=[Item(text="a")], traceparent=CALLER)


class Refusing:
    """Keeps the work that it was given and refuses it."""

    seen: Work | None = None

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Any:
        self.seen = work
        raise DispatchError("provisioning", "no worker", retry_after=60)


async def test_work_carries_the_gateways_span_below_the_callers() -> None:
    spans, inner = InMemorySpanExporter(), Refusing()
    traces = Tracing("gateway", spans)
    with pytest.raises(DispatchError):
        await Metered(inner, Metrics(), traces).submit(WORK, Route(), Timeouts(1.0))
    traces.close()
    (span,) = spans.get_finished_spans()
    assert span.parent is not None and span.context is not None
    assert f"{span.parent.trace_id:032x}-{span.parent.span_id:016x}" == CALLER[3:52]
    assert inner.seen is not None
    assert inner.seen.traceparent == f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"
    assert not span.status.is_ok and span.status.description == "provisioning"
    assert (span.name, span.attributes["model"]) == ("encode", "org/vectors")  # type: ignore[index]
    assert span.kind is SpanKind.PRODUCER


async def test_without_an_endpoint_the_callers_context_passes_through() -> None:
    assert tracing.from_env("gateway", {}) is None
    inner = Refusing()
    with pytest.raises(DispatchError):
        await Metered(inner, Metrics()).submit(WORK, Route(), Timeouts(1.0))
    assert inner.seen is WORK


def test_without_an_endpoint_no_sdk_is_imported() -> None:
    # Litestar imports its plugin, and with it the API, by itself
    ours = ("opentelemetry.sdk", "opentelemetry.exporter", "handlers.http.spans")
    script = f"import app, sys; app.create_app(); print([n for n in sys.modules if n.startswith({ours})])"
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_json_log_lines_carry_the_request() -> None:
    record = logging.LogRecord("sie.worker", logging.INFO, "x.py", 1, "hello", None, None)
    assert "request_id" not in json.loads(JsonFormatter().format(record))
    token = REQUEST.set("r9")
    try:
        assert json.loads(JsonFormatter().format(record))["request_id"] == "r9"
    finally:
        REQUEST.reset(token)


async def test_lines_of_the_gateway_carry_the_request_that_they_are_about() -> None:
    written: list[Any] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(json.loads(JsonFormatter().format(record)))

    async def broken(context: Any, body: Any) -> Any:
        raise ValueError("a fault of ours")

    handler = Keep()
    logging.getLogger("sie").addHandler(handler)
    try:
        rows = operation()
        answers = await asyncio.gather(*(Exchange(b'{"model": "m"}').run(server(rows), rows, broken) for _ in range(3)))
    finally:
        logging.getLogger("sie").removeHandler(handler)
    assert [answer.status for answer in answers] == [500] * 3
    assert {line["request_id"] for line in written} == {answer.headers["x-request-id"] for answer in answers}
    assert all("a fault of ours" in line["error"] for line in written)


class Collector:
    """An OTLP endpoint that keeps what it is sent: (service, name, trace id, span id, parent id)."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, bytes, bytes, bytes]] = []
        keep = self._keep

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                keep(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _keep(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append((service, span.name, span.trace_id, span.span_id, span.parent_span_id))


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def test_one_trace_runs_over_gateway_and_worker(collector: Collector, tmp_path: Path) -> None:
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "SIE_PRELOAD_MODELS": EMBEDDING_MODEL,
        "SIE_LOG_FORMAT": "json",
    }
    server = Server(tmp_path / "server.log", settings)
    try:
        server.start()
        body = json.dumps({"model": EMBEDDING_MODEL, "input": "Hi"}).encode()
        sent = {"content-type": "application/json", "traceparent": CALLER}
        server.wait(lambda: server.request("POST", "/v1/embeddings", body, sent)[0] == 200, 120.0, "an embedding")
        end = time.monotonic() + 30.0
        while not {"oasgate-gateway", "oasgate-worker"} <= {span[0] for span in collector.spans}:
            assert time.monotonic() < end, collector.spans
            time.sleep(0.1)
    finally:
        left = server.stop()
    assert left == []
    trace, caller = bytes.fromhex(CALLER[3:35]), bytes.fromhex(CALLER[36:52])
    below = {parent: (service, name, own) for service, name, of, own, parent in collector.spans if of == trace}
    line = [("", "", caller)]
    while line[-1][2] in below:
        line.append(below[line[-1][2]])
    assert [(service, name) for service, name, _ in line[1:]] == [
        ("oasgate-gateway", "POST /v1/embeddings"),
        ("oasgate-gateway", "encode"),
        ("oasgate-worker", "work"),
    ]

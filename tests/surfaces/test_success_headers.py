"""Every success header that the document declares, on every operation that declares any: it says what was measured.

A scripted worker tells times and identities; ``tests/metrics/test_success_headers.py`` looks at those of a real one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple, cast

import httpx
import msgspec
import pytest

from app import create_app
from engines.protocol.cluster import Answer, Route, Timeouts
from engines.protocol.events import Completed, Timing
from engines.protocol.work import GenerateWork, Work
from generated.sie import operations
from generated.sie.operations import Operation
from handlers.http.access import AccessLog
from handlers.services import Services
from handlers.settings import Settings
from tests.handlers.generation import fakes as generation
from tests.handlers.retrieval import fakes as retrieval
from tests.handlers.scripted import ScriptedCatalog

TIMING = Timing(
    queue_ms=1.26, tokenization_ms=0.54, inference_ms=33.3, postprocessing_ms=0.26, payload_fetch_ms=7.0, total_ms=50.0
)
REVISION, IDENTITY = "ab" * 32, "cd" * 32
FIXED = {
    "X-Queue-Publish-Time": "0.5",
    "X-Queue-Time": "1.3",
    "X-Inference-Time": "33.3",
    "X-Tokenization-Time": "0.5",
    "X-Postprocessing-Time": "0.3",
    "X-Payload-Fetch-Time": "7.0",
    "X-SIE-Model-Revision": REVISION,
    "X-SIE-Execution-Identity-SHA256": IDENTITY,
}
"""Headers and what they say of ``TIMING`` and of the identities."""
OPTIONAL = {
    "X-Tokenization-Time",
    "X-Postprocessing-Time",
    "X-Payload-Fetch-Time",
    "X-SIE-Model-Revision",
    "X-SIE-Execution-Identity-SHA256",
}
"""Absent where the worker has nothing to tell."""
SERVER = {"X-SIE-Request-Id", "X-SIE-Version", "X-SIE-Server-Version", "X-SIE-Worker", "X-Queue-Wait-Time"}
"""Headers whose value is the gateway's own."""


class Row(NamedTuple):
    path: str
    body: dict[str, Any]
    files: dict[str, Any] | None = None


MESSAGES = [{"role": "user", "content": "hi"}]
ROWS = {
    "proxy_chat": Row("/v1/chat/completions", {"model": "org/chat", "messages": MESSAGES}),
    "proxy_completions": Row("/v1/completions", {"model": "org/chat", "prompt": "hi"}),
    "proxy_responses": Row("/v1/responses", {"model": "org/chat", "input": "hi"}),
    "proxy_generate": Row("/v1/generate/org__chat", {"prompt": "hi", "max_new_tokens": 4}),
    "proxy_openai_embeddings": Row("/v1/embeddings", {"model": "org/embed", "input": "hi"}),
    "proxy_rerank": Row("/v1/rerank", {"model": "org/rerank", "query": "q", "documents": ["a"]}),
    "proxy_rerank_v2": Row("/v2/rerank", {"model": "org/rerank", "query": "q", "documents": ["a"]}),
    "proxy_encode": Row("/v1/encode/org/embed", {"items": [{"text": "a"}]}),
    "proxy_score": Row("/v1/score/org/rerank", {"query": {"text": "q"}, "items": [{"text": "a"}]}),
    "proxy_extract": Row("/v1/extract/org/extract", {"items": [{"text": "a"}]}),
    "proxy_openai_transcription": Row(
        "/v1/audio/transcriptions", {"model": "org/speech"}, {"file": ("a.wav", b"RIFF")}
    ),
}
DECLARING = [operation for operation in operations.ALL if operation.responses.get(200, operations.Response()).headers]


class Worker:
    """Answers as the scripted workers of both surfaces do, with these times and identities."""

    def __init__(self, timing: Timing, revision: str | None, identity: str | None) -> None:
        self._told = {"timing": timing, "bundle_config_hash": revision, "execution_identity": identity}

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Answer:
        scripted: Any = generation.Dispatcher() if isinstance(work, GenerateWork) else retrieval.Dispatcher()
        answer = await scripted.submit(work, route, timeouts)
        return cast(Answer, Telling(answer, self._told))


class Telling:
    def __init__(self, answer: Any, told: dict[str, Any]) -> None:
        self.publish_ms = answer.publish_ms
        self._answer = answer
        self._told = told

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._answer:
            yield msgspec.structs.replace(event, **self._told) if isinstance(event, Completed) else event

    async def aclose(self) -> None:
        await self._answer.aclose()


async def headers(row: Row, timing: Timing, revision: str | None, identity: str | None) -> httpx.Headers:
    generating = row.path.startswith(("/v1/chat", "/v1/comp", "/v1/resp", "/v1/gen"))
    catalog = ScriptedCatalog(generation.MODELS if generating else retrieval.MODELS)
    cluster: Any = generation.Cluster()
    services = Services(cast(Any, catalog), Worker(timing, revision, identity), cluster, Settings())
    transport = httpx.ASGITransport(app=cast(Any, create_app(services, AccessLog(None))))
    async with httpx.AsyncClient(transport=transport, base_url="http://oasgate") as http:
        sent = {"data": row.body, "files": row.files} if row.files else {"json": row.body}
        response = await http.post(row.path, **cast(Any, sent))
    assert response.status_code == 200, response.text
    return response.headers


def test_every_operation_that_declares_any_has_a_row() -> None:
    assert {operation.id for operation in DECLARING} == set(ROWS)


@pytest.mark.parametrize("operation", DECLARING, ids=lambda operation: operation.id)
async def test_every_declared_header_says_what_the_worker_measured(operation: Operation) -> None:
    declared = set(operation.responses[200].headers)
    assert declared == FIXED.keys() | SERVER, "a header that this table does not look at"
    seen = await headers(ROWS[operation.id], TIMING, REVISION, IDENTITY)
    assert {name: seen.get(name) for name in FIXED} == FIXED
    assert seen["X-SIE-Worker"] == f"queue:{seen['X-SIE-Request-Id']}"
    assert seen["X-SIE-Version"] == seen["X-SIE-Server-Version"] != ""
    assert float(seen["X-Queue-Wait-Time"]) >= 0.0


@pytest.mark.parametrize("operation", DECLARING, ids=lambda operation: operation.id)
async def test_what_was_not_measured_is_not_told(operation: Operation) -> None:
    seen = await headers(ROWS[operation.id], Timing(), None, None)
    assert not OPTIONAL & {name for name in FIXED if name in seen}
    # these two are always there: 0.0 where the worker did not measure
    assert (seen["X-Queue-Time"], seen["X-Inference-Time"]) == ("0.0", "0.0")

"""Contract M on the real server: every queue-backed 200 carries what was measured, and the numbers fit together.

That each of them has each declared header is ``tests/surfaces/test_success_headers.py``.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from typing import Any

import httpx
import numpy as np
import pytest

from generated.sie import operations
from tests.engines.transcription.helpers import wav
from tests.live import CHAT_MODEL, EMBEDDING_MODEL, Server

CHAT = {"model": CHAT_MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 6}
SPEECH_MODEL = "openai/whisper-tiny.en"
ITEM = {"text": "A sentence about light."}
OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "proxy_chat": ("/v1/chat/completions", CHAT),
    "proxy_completions": ("/v1/completions", {"model": CHAT_MODEL, "prompt": "One, two,", "max_tokens": 6}),
    "proxy_responses": ("/v1/responses", {"model": CHAT_MODEL, "input": "Hi", "max_output_tokens": 6}),
    "proxy_generate": (f"/v1/generate/{CHAT_MODEL.replace('/', '__')}", {"prompt": "One, two,", "max_new_tokens": 6}),
    "proxy_openai_embeddings": ("/v1/embeddings", {"model": EMBEDDING_MODEL, "input": ["one", "two"]}),
    "proxy_rerank": ("/v1/rerank", {"model": EMBEDDING_MODEL, "query": "light", "documents": ["lamp", "soup"]}),
    "proxy_rerank_v2": ("/v2/rerank", {"model": EMBEDDING_MODEL, "query": "light", "documents": ["lamp", "soup"]}),
    "proxy_encode": (f"/v1/encode/{EMBEDDING_MODEL}", {"items": [ITEM]}),
    "proxy_score": (f"/v1/score/{EMBEDDING_MODEL}", {"query": ITEM, "items": [ITEM, ITEM]}),
    "proxy_openai_transcription": ("/v1/audio/transcriptions", {"model": SPEECH_MODEL}),
    "proxy_extract": ("/v1/extract/spacy/en_core_web_sm", {"items": [{"text": "Ada Lovelace lived in London."}]}),
}
HUM = wav((8000 * np.sin(np.arange(16_000) / 20)).astype(np.int16))
"""A second of sound."""
MS = re.compile(r"\d+\.\d")


def post(server: Server, path: str, body: dict[str, Any]) -> tuple[dict[str, str], float]:
    """Headers of a 200, names in lower case, and the milliseconds that the client saw."""
    data, media = json.dumps(body).encode(), "application/json"
    if path == "/v1/audio/transcriptions":
        form = httpx.Request("POST", server.url, data=body, files={"file": ("a.wav", HUM)})
        data, media = form.read(), form.headers["content-type"]
    sent = {"content-type": media, "authorization": f"Bearer {server.token}"}
    request = urllib.request.Request(server.url + path, data, sent)
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=300) as response:
        response.read()
        return {name.lower(): value for name, value in response.headers.items()}, (time.perf_counter() - began) * 1e3


def test_every_operation_that_declares_success_headers_is_asked() -> None:
    declaring = {one.id for one in operations.ALL if one.responses.get(200, operations.Response()).headers}
    assert declaring == set(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_of_a_worker_tells_where_its_time_went(server: Server, name: str) -> None:
    headers, seen = post(server, *OPERATIONS[name])
    always = {"x-queue-publish-time", "x-queue-wait-time", "x-queue-time", "x-inference-time"}
    stages = {"x-tokenization-time", "x-postprocessing-time", "x-payload-fetch-time"}
    assert always <= headers.keys()
    times = {key: headers[key] for key in (always | stages) & headers.keys()}
    assert all(MS.fullmatch(value) for value in times.values()), times
    ms = {key: float(value) for key, value in times.items()}
    assert ms["x-inference-time"] > 0 and ms["x-queue-publish-time"] > 0
    assert all(ms[key] >= 0 for key in ms)
    assert "x-payload-fetch-time" not in headers, "this body fits into its message"
    # each is rounded by itself; queue and inference are parts of the wait, and the wait of what the client saw
    assert ms["x-queue-time"] + ms["x-inference-time"] <= ms["x-queue-wait-time"] + 5.0
    assert ms["x-queue-wait-time"] <= seen
    assert headers["x-sie-worker"] == f"queue:{headers['x-sie-request-id']}"
    assert re.fullmatch("[0-9a-f]{64}", headers["x-sie-model-revision"])
    assert re.fullmatch("[0-9a-f]{64}", headers["x-sie-execution-identity-sha256"])
    assert headers["x-sie-version"] == headers["x-sie-server-version"] != ""
    _, health = server.request("GET", "/health")
    assert headers["x-sie-model-revision"] == health["workers"][0]["bundle_config_hash"]


@pytest.mark.parametrize("name", ["proxy_encode", "proxy_openai_embeddings", "proxy_score"])
def test_tokenization_is_told_where_it_happens(server: Server, name: str) -> None:
    path, body = OPERATIONS[name]
    long = "word " * 20_000
    big = {"items": [{"text": long}]} if name != "proxy_openai_embeddings" else {"input": long}
    headers, _ = post(server, path, body | big)
    assert float(headers["x-tokenization-time"]) > 0


def test_a_body_too_large_for_its_message_tells_its_fetch(server: Server) -> None:
    headers, _ = post(server, *(OPERATIONS["proxy_encode"][0], {"items": [{"text": "a" + " " * 9_000_000}]}))
    assert float(headers["x-payload-fetch-time"]) > 0


def test_models_have_identities_of_their_own(server: Server) -> None:
    first, _ = post(server, *OPERATIONS["proxy_encode"])
    again, _ = post(server, *OPERATIONS["proxy_score"])
    other, _ = post(server, *OPERATIONS["proxy_chat"])
    identity = "x-sie-execution-identity-sha256"
    assert first[identity] == again[identity] != other[identity]

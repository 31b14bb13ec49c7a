"""What a person sees who sends something wrong with curl: the declared status, the declared envelope, the field."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import httpx
import pytest

from tests.live import CHAT_MODEL, EMBEDDING_MODEL, Server

CHAT = {"model": CHAT_MODEL, "messages": [{"role": "user", "content": "Hi"}]}
EMBEDDINGS = {"model": EMBEDDING_MODEL, "input": "Hi"}
RERANK = {"model": EMBEDDING_MODEL, "query": "a", "documents": ["b"]}


class Case(NamedTuple):
    """A bad request and the status, code and field that its answer must have."""

    path: str
    body: Any
    status: int
    code: str
    param: str | None


OPENAI_CASES = {
    "unknown field": Case("/v1/chat/completions", {**CHAT, "shine": 1}, 400, "unsupported_field", "shine"),
    "wrong type": Case("/v1/chat/completions", {**CHAT, "temperature": "hot"}, 400, "invalid_request", "temperature"),
    "wrong type deep down": Case(
        "/v1/chat/completions",
        {**CHAT, "messages": [{"role": 7, "content": "Hi"}]},
        400,
        "invalid_request",
        "messages[0].role",
    ),
    "out of range": Case("/v1/chat/completions", {**CHAT, "top_p": 1.5}, 400, "invalid_request", "top_p"),
    "too many tokens for an integer": Case(
        "/v1/chat/completions", {**CHAT, "max_tokens": 10**18}, 400, "invalid_request", "max_tokens"
    ),
    "part of a token": Case("/v1/chat/completions", {**CHAT, "max_tokens": 12.5}, 400, "invalid_request", "max_tokens"),
    "broken JSON": Case("/v1/chat/completions", b'{"model": ', 400, "invalid_request", None),
    "array for a body": Case("/v1/chat/completions", [], 400, "invalid_request", None),
    "string for a body": Case("/v1/chat/completions", "x", 400, "invalid_request", None),
    "null for a body": Case("/v1/chat/completions", b"null", 400, "invalid_request", None),
    "empty body": Case("/v1/chat/completions", b"", 400, "invalid_request", None),
    "missing field": Case("/v1/chat/completions", {"model": CHAT_MODEL}, 400, "invalid_request", "messages"),
    "unknown model": Case("/v1/chat/completions", {**CHAT, "model": "no/such"}, 404, "model_not_found", "model"),
    "completions: unknown field": Case(
        "/v1/completions", {"model": CHAT_MODEL, "prompt": "a", "shine": 1}, 400, "unsupported_field", "shine"
    ),
    "completions: echo": Case(
        "/v1/completions", {"model": CHAT_MODEL, "prompt": "a", "echo": True}, 400, "unsupported_field", "echo"
    ),
    "embeddings: wrong type": Case("/v1/embeddings", {**EMBEDDINGS, "input": 5}, 400, "invalid_request", "input"),
    "embeddings: unknown model": Case(
        "/v1/embeddings", {**EMBEDDINGS, "model": "no/such"}, 404, "model_not_found", "model"
    ),
}


def post(url: str, case: Case, headers: dict[str, str] | None = None) -> httpx.Response:
    content = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    return httpx.post(url + case.path, content=content, headers={"content-type": "application/json", **(headers or {})})


@pytest.mark.parametrize("case", OPENAI_CASES.values(), ids=OPENAI_CASES.keys())
def test_openai_shaped_refusal_names_the_field(base_url: str, case: Case) -> None:
    response = post(base_url, case)
    assert response.status_code == case.status, response.text
    assert response.headers["content-type"].startswith("application/json")
    error = response.json()["error"]
    assert error["code"] == case.code
    assert error["param"] == case.param
    assert error["message"]
    assert error["type"] in {"invalid_request_error", "model_not_found"}


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({**RERANK, "documents": "b"}, 400, "documents"),
        ({**RERANK, "top_n": -1}, 400, "top_n"),
        ({**RERANK, "model": "no/such"}, 404, "no/such"),
        ([], 400, ""),
    ],
    ids=["wrong type", "out of range", "unknown model", "array for a body"],
)
def test_rerank_refusal_is_a_message_that_names_the_field(
    base_url: str, path: str, body: object, status: int, named: str
) -> None:
    response = httpx.post(base_url + path, json=body)
    assert response.status_code == status, response.text
    assert list(response.json()) == ["message"]
    assert named in response.json()["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v2/rerank"])
def test_body_over_the_limit_is_413(base_url: str, path: str) -> None:
    body = b'{"model": "' + b"x" * (17 << 20) + b'"}'
    response = httpx.post(base_url + path, content=body, headers={"content-type": "application/json"}, timeout=60)
    assert response.status_code == 413, response.text
    assert "error" in response.json() or "message" in response.json()


def test_wrong_method_says_which_are_allowed(base_url: str) -> None:
    response = httpx.put(f"{base_url}/v1/chat/completions", json=CHAT)
    assert response.status_code == 405
    assert "POST" in response.headers["allow"]
    assert response.json()["error"]["message"]


def test_other_content_type_is_415(base_url: str) -> None:
    response = httpx.post(f"{base_url}/v1/chat/completions", content=b"a=b", headers={"content-type": "text/plain"})
    assert response.status_code == 415
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("token", [None, "wrong", ""])
def test_missing_or_wrong_token_is_401_that_both_sdks_can_read(guarded: Server, token: str | None) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    response = post(guarded.url, Case("/v1/chat/completions", CHAT, 401, "", None), headers)
    assert response.status_code == 401
    assert response.json()["detail"]["message"]
    assert response.json()["error"]["message"]
    assert httpx.post(f"{guarded.url}/v2/rerank", json=RERANK, headers=headers).json()["message"]


def test_right_token_opens_the_door(guarded: Server) -> None:
    headers = {"authorization": f"Bearer {guarded.token}"}
    assert httpx.get(f"{guarded.url}/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_need_no_token(guarded: Server, path: str) -> None:
    assert httpx.get(guarded.url + path).status_code in {200, 503}


def test_every_answer_has_one_request_id_under_both_names(base_url: str) -> None:
    for response in (httpx.get(f"{base_url}/v1/models"), httpx.post(f"{base_url}/v1/embeddings", json=[])):
        assert response.headers["x-request-id"]
        assert response.headers["x-request-id"] == response.headers["x-sie-request-id"]

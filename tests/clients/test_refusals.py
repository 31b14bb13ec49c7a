"""What a person sees who sends something wrong with curl: the declared status, the declared envelope, the field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.live import CHAT_MODEL, EMBEDDING_MODEL, KEY

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


@pytest.fixture
def client(base_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base_url, headers={"authorization": f"Bearer {KEY}"}, timeout=60) as client:
        yield client


def post(client: httpx.Client, path: str, body: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(path, content=content, headers={"content-type": "application/json"})


@pytest.mark.parametrize("case", OPENAI_CASES.values(), ids=OPENAI_CASES.keys())
def test_openai_shaped_refusal_names_the_field(client: httpx.Client, case: Case) -> None:
    response = post(client, case.path, case.body)
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
    client: httpx.Client, path: str, body: object, status: int, named: str
) -> None:
    response = post(client, path, body)
    assert response.status_code == status, response.text
    assert list(response.json()) == ["message"]
    assert named in response.json()["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v2/rerank"])
def test_body_over_the_limit_is_413(client: httpx.Client, path: str) -> None:
    response = post(client, path, b'{"model": "' + b"x" * (17 << 20) + b'"}')
    assert response.status_code == 413, response.text
    assert {"error", "message"} & set(response.json())


def test_wrong_method_says_which_are_allowed(client: httpx.Client) -> None:
    response = client.put("/v1/chat/completions", json=CHAT)
    assert response.status_code == 405
    assert "POST" in response.headers["allow"]
    assert response.json()["error"]["message"]


def test_other_content_type_is_415(client: httpx.Client) -> None:
    response = client.post("/v1/chat/completions", content=b"a=b", headers={"content-type": "text/plain"})
    assert response.status_code == 415
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic dW51c2Vk"}])
def test_missing_or_wrong_token_is_a_401_that_sdks_can_read(base_url: str, headers: dict[str, str]) -> None:
    chat = httpx.post(f"{base_url}/v1/chat/completions", json=CHAT, headers=headers)
    assert chat.status_code == 401
    assert chat.json()["detail"]["message"]
    assert chat.json()["error"]["message"]
    rerank = httpx.post(f"{base_url}/v2/rerank", json=RERANK, headers=headers)
    assert rerank.status_code == 401
    assert rerank.json()["message"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_need_no_token(base_url: str, path: str) -> None:
    assert httpx.get(base_url + path).status_code == 200


def test_every_answer_has_one_request_id_under_both_names(client: httpx.Client) -> None:
    for response in (client.get("/v1/models"), post(client, "/v1/embeddings", [])):
        assert response.headers["x-request-id"]
        assert response.headers["x-request-id"] == response.headers["x-sie-request-id"]

"""The whole application over a fake cluster: every route of the document, and requests that no operation takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from litestar import Litestar
from litestar.testing import TestClient

import app
from generated.sie import models, operations
from handlers.http.access import AccessLog
from tests.http.fakes import services

ROOT = Path(__file__).resolve().parents[2]
HTTP = [operation for operation in operations.ALL if not operation.websocket]


def client(**settings: Any) -> TestClient[Litestar]:
    return TestClient(app.create_app(services(**settings), AccessLog(None)), raise_server_exceptions=False)


@pytest.fixture
def http() -> Iterator[TestClient[Litestar]]:
    with client() as made:
        yield made


def url(path: str) -> str:
    path = path.replace("bundles/{id}", "bundles/default")
    return path.replace("{model}", "org/chat").replace("{id}", "org/chat").replace("{name}", "default")


# --- health, models, docs, moderations


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_answer_plain_text(http: TestClient[Litestar], path: str) -> None:
    response = http.get(path)
    assert (response.status_code, response.text) == (200, "ok")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


def test_health_tells_the_cluster(http: TestClient[Litestar]) -> None:
    body = http.get("/health").json()
    msgspec.convert(body, models.HealthResponse)
    assert (body["status"], body["type"]) == ("healthy", "gateway")
    assert body["cluster"] == {"worker_count": 1, "gpu_count": 0, "models_loaded": 2, "total_qps": 2.5}
    assert [(worker["name"], worker["healthy"]) for worker in body["workers"]] == [("w1", True), ("w2", False)]
    assert [model["name"] for model in body["models"]] == ["elsewhere/only", "org/chat"]
    assert body["live_gpu_types"] == ["cpu"]


def test_models_are_listed_in_both_shapes(http: TestClient[Litestar]) -> None:
    body = http.get("/v1/models").json()
    msgspec.convert(body, models.ModelsResponse)
    names = ["elsewhere/only", "org/chat", "org/chat:fast", "org/vectors"]
    assert [model["name"] for model in body["models"]] == names
    assert body["data"] == [{"id": n, "object": "model", "created": 1_700_000_000, "owned_by": "sie"} for n in names]
    chat = body["models"][1]
    assert (chat["loaded"], chat["state"], chat["outputs"]) == (True, "loaded", ["tokens"])
    assert chat["profiles"] == {"default": {"is_default": True}, "fast": {"is_default": False}}
    assert chat["capabilities"] == {
        "lora_adapters": ["clerk", "poet"],
        "profile_lora_adapters": {"fast": ["clerk", "poet"]},
        "grammar": ["regex"],
        "tools": True,
        "code": False,
        "sql": False,
        "guard": False,
    }
    assert body["models"][3]["dims"] == {"dense": 384}


@pytest.mark.parametrize("name", ["org/chat", "org%2Fchat", "ORG/CHAT", "org__chat"])
def test_model_is_found_by_every_spelling(http: TestClient[Litestar], name: str) -> None:
    body = http.get(f"/v1/models/{name}").json()
    assert (body["id"], body["name"], body["object"]) == ("org/chat", "org/chat", "model")


def test_profile_is_a_model_of_its_own(http: TestClient[Litestar]) -> None:
    assert http.get("/v1/models/org/chat:fast").json()["id"] == "org/chat:fast"


@pytest.mark.parametrize("name", ["nope", "org/nope", "org/chat:nope"])
def test_unknown_model_is_404(http: TestClient[Litestar], name: str) -> None:
    response = http.get(f"/v1/models/{name}")
    assert response.status_code == 404
    assert response.json() == {"detail": {"code": "MODEL_NOT_FOUND", "message": f"Model '{name}' not found"}}


def test_document_is_served_byte_for_byte(http: TestClient[Litestar]) -> None:
    response = http.get("/openapi.json")
    assert response.content == Path(operations.DOCUMENT).read_bytes()
    assert response.headers["content-type"] == "application/json"


def test_docs_load_nothing_from_elsewhere(http: TestClient[Litestar]) -> None:
    page = http.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "http://" not in page.text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert re.search(r"script-src 'self' 'sha256-[A-Za-z0-9+/]{43}=';", policy), "no inline script but the page's own"
    assert '<script src="docs/redoc.standalone.js">' in page.text
    script = http.get("/docs/redoc.standalone.js")
    assert script.status_code == 200
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert len(script.content) > 500_000
    assert b"redoc" in script.content[:200_000].lower()
    again = http.get("/docs/redoc.standalone.js", headers={"if-none-match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_moderations_are_honestly_not_implemented(http: TestClient[Litestar]) -> None:
    response = http.post("/v1/moderations", json={"input": "x"})
    assert response.status_code == 501
    assert response.json()["error"]["code"] == "not_implemented"
    assert response.headers["x-should-retry"] == "false"


# --- routes


@pytest.mark.parametrize("operation", HTTP, ids=lambda operation: operation.id)
def test_every_operation_is_routed_to_its_own_row(http: TestClient[Litestar], operation: operations.Operation) -> None:
    response = http.request(operation.method, url(operation.path), content=b"[]" if operation.body else None)
    assert response.status_code != 405
    assert "No operation" not in response.text
    assert response.headers["x-request-id"] == response.headers["x-sie-request-id"]
    assert response.headers["x-sie-version"] == response.headers["x-sie-server-version"]


@pytest.mark.parametrize("operation", HTTP, ids=lambda operation: operation.id)
def test_every_secured_operation_asks_for_a_token(operation: operations.Operation) -> None:
    with client(auth_mode="token", auth_tokens=("t",)) as http:
        response = http.request(operation.method, url(operation.path), content=b"{}" if operation.body else None)
        open_ = operation.path in {"/healthz", "/readyz", "/openapi.json", "/docs"}
        assert (response.status_code == 401) is not open_
        if not open_:
            assert operation.secured
            body = response.json()
            openai = "OpenAIErrorEnvelope" in str(operation.responses)
            rerank = operation.path.endswith("/rerank")
            assert body["detail"]["code"] == "UNAUTHORIZED"
            assert ("error" in body) is openai
            assert ("message" in body) is rerank


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("POST", "/v1/nothing"),
        ("GET", "/v1/chat/completions"),
        ("DELETE", "/v1/models"),
        ("POST", "/v1/configs/models"),
        ("GET", "/metric"),
        ("GET", "/v1/admin/x"),
    ],
)
def test_what_is_not_routed_asks_for_a_token_too(method: str, path: str) -> None:
    with client(auth_mode="token", auth_tokens=("t",), admin_token="boss") as http:
        response = http.request(method, path)
        assert response.status_code == 401
        assert response.json()["detail"]["code"] == "UNAUTHORIZED"
        for token in ("t", "boss"):
            assert http.request(method, path, headers={"authorization": f"Bearer {token}"}).status_code in {404, 405}


@pytest.mark.parametrize(
    ("path", "key"),
    [("/nothing", "detail"), ("/v1/embeddings/x", "error"), ("/v1/rerank/x", "message"), ("/v1/pools/a/b/c", "detail")],
)
def test_unknown_path_is_404_in_the_envelope_of_its_prefix(http: TestClient[Litestar], path: str, key: str) -> None:
    response = http.get(path)
    assert response.status_code == 404
    assert list(response.json()) == [key]
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "meant", "key"),
    [
        ("/v1/v1/rerank", "/v1/rerank", "message"),
        ("/v1/v2/rerank", "/v2/rerank", "message"),
        ("/v1/v1/chat/completions", "/v1/chat/completions", "error"),
        ("/chat/completions", "/v1/chat/completions", "error"),
        ("/embeddings", "/v1/embeddings", "error"),
    ],
)
def test_wrong_base_url_gets_a_hint(http: TestClient[Litestar], path: str, meant: str, key: str) -> None:
    response = http.post(path, json={})
    assert response.status_code == 404
    assert list(response.json()) == [key]
    assert f"did you mean {meant}?" in response.text
    assert "base_url" in response.text


@pytest.mark.parametrize(
    ("method", "path", "allow", "key"),
    [
        ("GET", "/v1/chat/completions", {"POST", "OPTIONS"}, "error"),
        ("PUT", "/v1/rerank", {"POST", "OPTIONS"}, "message"),
        ("DELETE", "/v1/pools", {"GET", "POST", "OPTIONS"}, "detail"),
        ("POST", "/v1/configs/models", {"GET", "OPTIONS"}, "detail"),
        ("POST", "/v1/models/org/chat", {"GET", "OPTIONS"}, "detail"),
    ],
)
def test_wrong_method_is_405_with_allow(
    http: TestClient[Litestar], method: str, path: str, allow: set[str], key: str
) -> None:
    response = http.request(method, path)
    assert response.status_code == 405
    assert {item.strip() for item in response.headers["allow"].split(",")} == allow
    assert list(response.json()) == [key]


def test_options_lists_all_methods_of_a_path(http: TestClient[Litestar]) -> None:
    response = http.options("/v1/pools")
    assert (response.status_code, response.content) == (204, b"")
    assert {item.strip() for item in response.headers["allow"].split(",")} == {"GET", "POST", "OPTIONS"}
    assert "access-control-allow-origin" not in response.headers


def test_plain_get_of_a_websocket_asks_for_the_upgrade(http: TestClient[Litestar]) -> None:
    response = http.get("/ws/cluster-status")
    assert response.status_code == 426
    assert response.headers["upgrade"] == "websocket"


# --- cross origin


def test_cross_origin_request_of_a_named_origin_is_allowed_with_the_headers_it_asks_for() -> None:
    asked = "authorization,content-type,x-stainless-lang,x-stainless-retry-count,openai-organization"
    with client(cors_origins=("https://a.example",)) as http:
        preflight = http.options(
            "/v1/chat/completions",
            headers={
                "origin": "https://a.example",
                "access-control-request-method": "POST",
                "access-control-request-headers": asked,
            },
        )
        assert preflight.headers["access-control-allow-origin"] == "https://a.example"
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert preflight.headers["access-control-allow-headers"] == asked
        for path in ("/v1/models", "/v1/models/nope", "/nothing"):
            response = http.get(path, headers={"origin": "https://a.example"})
            assert response.headers["access-control-allow-origin"] == "https://a.example"
            assert response.headers["vary"] == "Origin"
        other = http.get("/v1/models", headers={"origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


def test_every_origin_can_be_allowed_and_none_is_by_default(http: TestClient[Litestar]) -> None:
    headers = {"origin": "https://a.example"}
    assert "access-control-allow-origin" not in http.get("/v1/models", headers=headers).headers
    with client(cors_origins=("*",)) as open_:
        assert open_.get("/v1/models", headers=headers).headers["access-control-allow-origin"] == "*"


def test_nonsense_in_a_preflight_is_not_echoed() -> None:
    with client(cors_origins=("*",)) as http:
        headers = {"origin": "https://a.example", "access-control-request-headers": "a b; c"}
        response = http.options("/v1/models", headers=headers)
        assert response.headers["access-control-allow-headers"] == "authorization, content-type, accept"


# --- websockets


def test_websocket_without_token_is_refused_by_a_plain_401() -> None:
    from litestar.exceptions import WebSocketDisconnect

    with client(auth_mode="token", auth_tokens=("t",)) as http, pytest.raises(WebSocketDisconnect):
        http.websocket_connect("/ws/cluster-status").__enter__()


# --- the process


def test_gateway_loads_no_engine_library() -> None:
    code = """
import json, sys
import app
from litestar.testing import TestClient
from tests.http.fakes import services
with TestClient(app.create_app(services())) as http:
    assert http.get("/v1/models").status_code == 200
    http.post("/v1/chat/completions", json={"model": "org/chat", "messages": [{"role": "user", "content": "x"}]})
    http.post("/v1/embeddings", json={"model": "org/vectors", "input": "x"})
print(json.dumps([name for name in ("torch", "transformers", "vllm", "sentence_transformers") if name in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_factory_starts_nothing() -> None:
    import threading

    before = set(threading.enumerate())
    app.create_app(services(), AccessLog(None))
    app.create_app(services(), AccessLog(None))
    assert set(threading.enumerate()) == before

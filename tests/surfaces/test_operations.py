"""One row per operation, status and rule of the operations that have no table of their own: health, pages, documents,
models, the WebSocket, moderations (contract H, K, L)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from litestar.exceptions import WebSocketDisconnect
from litestar.testing import TestClient

import app
from handlers.http.access import AccessLog
from tests.http.fakes import services

WATCH = "/ws/cluster-status"
TOKEN: dict[str, Any] = {"auth_mode": "token", "auth_tokens": ("t",), "admin_token": "boss"}
EMPTY: dict[str, Any] = {"auth_mode": "token"}
EXEMPT: dict[str, Any] = TOKEN | {"auth_exempt_operational": True}
MISCONFIGURED = "GATEWAY_AUTH_MISCONFIGURED"
HTML = "text/html; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"
PAGE = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"


class Row(NamedTuple):
    """A request, its status, and of an error its code, of a success its media type or a value of its body."""

    rule: str
    path: str
    status: int
    answer: Any = None
    token: str = "t"
    settings: dict[str, Any] = TOKEN
    method: str = "GET"
    accept: str = "*/*"
    body: Any = None


def guarded(path: str, answer: Any) -> list[Row]:
    """What contract K says of any operation that asks for the inference token."""
    return [
        Row("with a token", path, 200, answer),
        Row("without authentication", path, 200, answer, "", {}),
        Row("without a token", path, 401, "UNAUTHORIZED", ""),
        Row("with a token that nobody has", path, 401, "UNAUTHORIZED", "x"),
        Row("with the admin token alone", path, 401, "UNAUTHORIZED", "boss"),
        Row("no token is configured", path, 500, MISCONFIGURED, "t", EMPTY),
    ]


def opened(path: str, answer: Any) -> list[Row]:
    """What is open whatever the settings are."""
    return [
        Row("without authentication", path, 200, answer, "", {}),
        Row("without a token", path, 200, answer, ""),
        Row("with a token that nobody has", path, 200, answer, "x"),
        Row("no token is configured", path, 200, answer, "", EMPTY),
    ]


ROWS = [
    *opened("/healthz", PLAIN),
    *opened("/readyz", PLAIN),
    *opened("/openapi.json", "application/json"),
    *opened("/docs", HTML),
    *guarded("/", HTML),
    Row("a browser gets the page, to ask for the token", "/", 401, HTML, "", accept=PAGE),
    Row("a browser gets the error of the settings", "/", 500, MISCONFIGURED, "", EMPTY, accept=PAGE),
    Row("exempt", "/", 200, HTML, "", EXEMPT),
    Row("exempt without tokens", "/", 200, HTML, "", EMPTY | {"auth_exempt_operational": True}),
    *guarded("/health", "application/json"),
    Row("exempt", "/health", 200, {"type": "gateway"}, "", EXEMPT),
    *guarded("/v1/models", {"object": "list"}),
    Row("not exempt", "/v1/models", 401, "UNAUTHORIZED", "", EXEMPT),
    *guarded("/v1/models/org/chat", {"id": "org/chat", "object": "model"}),
    Row("an encoded slash", "/v1/models/org%2Fchat", 200, {"id": "org/chat"}),
    Row("two underscores for the slash", "/v1/models/org__chat", 200, {"id": "org/chat"}),
    Row("in any case", "/v1/models/ORG/Chat", 200, {"id": "org/chat"}),
    Row("a profile", "/v1/models/org/chat:fast", 200, {"id": "org/chat:fast"}),
    Row("the default profile is the model", "/v1/models/org/chat:default", 200, {"id": "org/chat"}),
    Row("an unknown model", "/v1/models/no/such", 404, "MODEL_NOT_FOUND"),
    Row("an unknown profile", "/v1/models/org/chat:no", 404, "MODEL_NOT_FOUND"),
    Row("a model that only a worker has", "/v1/models/elsewhere/only", 200, {"id": "elsewhere/only", "loaded": True}),
    Row("a watcher with a token", WATCH, 101, method="WEBSOCKET"),
    Row("a watcher without authentication", WATCH, 101, None, "", {}, "WEBSOCKET"),
    Row("an exempt watcher", WATCH, 101, None, "", EXEMPT, "WEBSOCKET"),
    Row("a watcher without a token", WATCH, 401, None, "", method="WEBSOCKET"),
    Row("a watcher with the admin token", WATCH, 401, None, "boss", method="WEBSOCKET"),
    Row("a watcher, no token is configured", WATCH, 500, None, "t", EMPTY, "WEBSOCKET"),
    Row("no upgrade", WATCH, 426, "UPGRADE_REQUIRED"),
    Row("no upgrade, without a token", WATCH, 401, "UNAUTHORIZED", ""),
    Row("no upgrade, no token is configured", WATCH, 500, MISCONFIGURED, "t", EMPTY),
    *(
        row._replace(method="POST", body={"model": "m", "input": "x"}, status=501 if row.status == 200 else row.status)
        for row in guarded("/v1/moderations", "NOT_IMPLEMENTED")
    ),
    *guarded("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
    Row("exempt", "/metrics", 200, None, "", EXEMPT),
    *opened("/playground", HTML),
    *opened("/static/style.css", "text/css; charset=utf-8"),
    Row("no file of that name", "/static/no.css", 404, "NOT_FOUND", ""),
    Row("no way out of the folder", "/static/..%2F..%2F..%2Fapp.py", 404),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}: {row.rule}")
def test_row(row: Row) -> None:
    headers = {"accept": row.accept} | ({"authorization": f"Bearer {row.token}"} if row.token else {})
    with TestClient(app.create_app(services(**row.settings), AccessLog(None)), raise_server_exceptions=False) as http:
        if row.method == "WEBSOCKET":
            watch(http, headers, row.status)
            return
        response = http.request(row.method, row.path, headers=headers, json=row.body, follow_redirects=False)
    assert response.status_code == row.status, response.text
    assert response.headers["x-request-id"] == response.headers["x-sie-request-id"] != ""
    if row.status >= 400 and row.answer != HTML:
        body = response.json()
        assert row.answer in (None, response.headers["x-sie-error-code"])
        assert (body.get("detail") or body["error"])["message"]
    elif isinstance(row.answer, dict):
        assert response.json() | row.answer == response.json()
    elif row.answer is not None:
        assert response.headers["content-type"] == row.answer
        assert response.content


def watch(http: TestClient[Any], headers: dict[str, str], status: int) -> None:
    """That a watcher gets a frame, or none. Which status refuses it shows on a real server (``test_watch_wire.py``)."""
    opening = http.websocket_connect(WATCH, headers=headers)
    if status == 101:
        with opening as socket:
            assert "timestamp" in socket.receive_json()
    else:
        with pytest.raises(WebSocketDisconnect):
            opening.__enter__()

"""Who may do what: every route against the document's ``security``, tokens that change, the audit log, SDK skew."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from litestar.testing import TestClient

import app
from generated.sie import operations
from handlers.http.access import AccessLog
from handlers.http.audit import who
from handlers.http.skew import Skew
from handlers.http.tokens import TokenFile
from handlers.pools.surface import PoolsSurface
from handlers.settings import SettingError, read
from tests.http.fakes import services

DOCUMENT = json.loads(Path(operations.DOCUMENT).read_bytes())
METHODS = ("get", "put", "post", "delete", "patch")
ADMIN_PREFIXES = ("/v1/pools", "/v1/configs", "/v1/admin")
ROUTES = [
    (method.upper(), path, item[method].get("security", DOCUMENT.get("security")))
    for path, item in sorted(DOCUMENT["paths"].items())
    for method in METHODS
    if method in item
]
BEYOND = {
    "/docs/redoc.standalone.js": "open",
    "/metrics": "guarded",
}
"""Routes that the document does not have: open as ``/docs`` is, or guarded as ``/health`` is."""


def client(**settings: Any) -> TestClient[Any]:
    chosen = {"auth_mode": "token", "auth_tokens": ("t", "u"), "admin_token": "boss", **settings}
    return TestClient(app.create_app(services(**chosen), AccessLog(None)))


def url(path: str) -> str:
    return path.replace("{model}", "org/chat").replace("{id}", "default").replace("{name}", "some")


def ask(http: TestClient[Any], method: str, path: str, token: str | None) -> tuple[int, str]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    response = http.request(method, url(path), headers=headers, json={} if method == "POST" else None)
    return response.status_code, response.headers.get("x-sie-error-code", "")


def test_the_walk_is_over_every_route_there_is() -> None:
    application = app.create_app(services(), AccessLog(None))
    walked = {path.replace("{model}", "").replace("{id}", "").replace("{name}", "") for _, path, _ in ROUTES}
    for route in application.routes:
        plain = route.path_format.replace("{model}", "").replace("{id}", "").replace("{name}", "")
        own = plain.startswith(("/playground", "/static", "/inflection"))
        assert own or plain in walked or route.path in BEYOND or plain + "/status" in walked, route.path


@pytest.mark.parametrize(("method", "path", "security"), ROUTES, ids=str)
def test_route_is_guarded_exactly_as_the_document_says(method: str, path: str, security: list[Any]) -> None:
    admin = method != "GET" and path.startswith(ADMIN_PREFIXES)
    refusals = {(401, "UNAUTHORIZED"), (403, "FORBIDDEN"), (500, "GATEWAY_AUTH_MISCONFIGURED")}
    with client() as http:
        if not security:
            for token in (None, "wrong", "t", "boss"):
                assert ask(http, method, path, token) not in refusals
            return
        for token in (None, "", "wrong", "t t", "T"):
            assert ask(http, method, path, token) == (401, "UNAUTHORIZED"), token
        if admin:
            assert ask(http, method, path, "t") == (403, "FORBIDDEN")
            assert ask(http, method, path, "boss") not in refusals
        else:
            assert ask(http, method, path, "boss") == (401, "UNAUTHORIZED")
            for token in ("t", "u"):
                assert ask(http, method, path, token) not in refusals
    with client(auth_tokens=()) as http:
        assert ask(http, method, path, "t") == (500, "GATEWAY_AUTH_MISCONFIGURED")
    with client(admin_token=None) as http:
        expected = {(403, "FORBIDDEN")} if admin else set()
        assert ({ask(http, method, path, "t")} & refusals) == expected


@pytest.mark.parametrize(("path", "kind"), BEYOND.items())
def test_route_beyond_the_document_is_open_or_guarded(path: str, kind: str) -> None:
    with client() as http:
        assert (ask(http, "GET", path, None)[0] == 401) == (kind == "guarded")
        assert ask(http, "GET", path, "t")[0] in {200, 500}, "500: the page's package is not installed"


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/ws/cluster-status"])
def test_operational_routes_can_be_exempt(path: str) -> None:
    with client(auth_exempt_operational=True) as http:
        assert ask(http, "GET", path, None)[0] in {200, 426}
        assert ask(http, "GET", "/v1/models", None)[0] == 401


def test_an_unknown_mode_refuses_to_start() -> None:
    with pytest.raises(SettingError, match="SIE_AUTH_MODE"):
        read({"SIE_AUTH_MODE": "maybe"})


def test_tokens_are_rotated_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handlers.http.tokens.LOOK_EVERY", 0.0)
    inference, admin = tmp_path / "tokens", tmp_path / "admin"
    inference.write_text("# first\none, two\n\nthree # of Eve\n")
    admin.write_text("boss-1\n")
    settings = {"auth_tokens": ("fixed",), "auth_tokens_file": str(inference), "admin_token_file": str(admin)}
    with client(admin_token=None, **settings) as http:
        assert [ask(http, "GET", "/v1/models", token)[0] for token in ("one", "two", "three", "fixed")] == [200] * 4
        assert [ask(http, "GET", "/v1/models", token)[0] for token in ("#", "first", "# first", "of")] == [401] * 4
        assert ask(http, "DELETE", "/v1/pools/x", "boss-1")[0] == 404
        replace(inference, "four\n")
        replace(admin, "boss-2\n")
        assert [ask(http, "GET", "/v1/models", token)[0] for token in ("one", "four", "fixed")] == [401, 200, 200]
        assert [ask(http, "DELETE", "/v1/pools/x", token)[0] for token in ("boss-1", "boss-2")] == [401, 404]
        inference.unlink()
        assert ask(http, "GET", "/v1/models", "four")[0] == 200, "a file that has gone locks nobody out"
        replace(inference, "five\n")
        assert [ask(http, "GET", "/v1/models", token)[0] for token in ("four", "five")] == [401, 200]


def test_an_empty_token_file_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handlers.http.tokens.LOOK_EVERY", 0.0)
    path = tmp_path / "tokens"
    path.write_text("one")
    with client(auth_tokens=(), auth_tokens_file=str(path)) as http:
        assert ask(http, "GET", "/v1/models", "one")[0] == 200
        replace(path, "")
        assert ask(http, "GET", "/v1/models", "one") == (500, "GATEWAY_AUTH_MISCONFIGURED")
        assert ask(http, "GET", "/v1/models", "")[0] == 500


def test_a_file_is_looked_at_once_a_second_and_a_missing_one_refuses_to_start(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "tokens"
    path.write_text("one")
    tokens = TokenFile(str(path), lambda: now)
    (first,) = tokens.digests()
    replace(path, "two")
    now = 0.9
    assert tokens.digests() == (first,)
    now = 1.0
    assert tokens.digests() != (first,)
    with pytest.raises(SettingError, match="nowhere"):
        TokenFile(str(tmp_path / "nowhere"))


def test_every_mutation_leaves_a_line_that_holds_no_token(caplog: pytest.LogCaptureFixture) -> None:
    asked = [
        ("POST", "/v1/pools", "boss", {"name": "mine", "gpus": {"l4": 1}}),
        ("POST", "/v1/pools", "boss", {"name": "mine"}),
        ("POST", "/v1/pools/mine/renew", "boss", None),
        ("DELETE", "/v1/pools/mine", "t", None),
        ("DELETE", "/v1/pools/default", "boss", None),
        ("POST", "/v1/configs/resolve", None, {"model": "org/chat"}),
        ("POST", "/v1/configs/resolve", "secret-guess", {"model": "org/chat"}),
    ]
    with caplog.at_level(logging.INFO, "sie.audit"), client() as http:
        answers = []
        for method, path, token, body in asked:
            headers = {"authorization": f"Bearer {token}"} if token else {}
            answers.append(http.request(method, path, json=body, headers=headers))
        http.get("/v1/pools", headers={"authorization": "Bearer t"})
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "sie.audit"]
    assert [line["status"] for line in lines] == [answer.status_code for answer in answers]
    assert [line["request_id"] for line in lines] == [answer.headers["x-request-id"] for answer in answers]
    assert [line["audit"] for line in lines] == [
        *["create_pool"] * 2,
        "renew_pool",
        *["delete_pool"] * 2,
        *["resolve_config"] * 2,
    ]
    assert {line["audit"] for line in lines} == {one.id for one in operations.ALL if one.admin}, (
        "and nothing is left out"
    )
    assert [line.get("target", "") for line in lines] == ["mine", "", "mine", "mine", "default", "", ""]
    callers = [line["who"] for line in lines]
    assert len(set(callers)) == 4
    assert callers[5] == "anonymous" == who(None) == who(b"Basic abc")
    assert all(caller.startswith("sha256:") and len(caller) == 19 for caller in callers if caller != "anonymous")
    for secret in ("boss", "secret-guess", "Bearer"):
        assert secret not in caplog.text


async def test_a_mutation_that_its_client_does_not_wait_for_leaves_a_line_too(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def slow(*_of: object) -> None:
        begun.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(PoolsSurface, "delete_pool", slow)
    application = app.create_app(services(auth_mode="token", auth_tokens=("t",), admin_token="boss"), AccessLog(None))
    headers = [(b"authorization", b"Bearer boss")]
    scope: Any = {"type": "http", "method": "DELETE", "path": "/v1/pools/mine", "query_string": b"", "headers": headers}
    receive, send = AsyncMock(return_value={"type": "http.request", "body": b""}), AsyncMock()
    with caplog.at_level(logging.INFO, "sie.audit"):
        serving = asyncio.create_task(application(scope, receive, send))
        await asyncio.wait_for(begun.wait(), 10)
        serving.cancel()
        await asyncio.wait({serving})
    (line,) = [json.loads(record.getMessage()) for record in caplog.records if record.name == "sie.audit"]
    assert (line["audit"], line["target"], line["status"]) == ("delete_pool", "mine", 503)


def test_the_version_of_an_sdk_is_warned_of_once_and_never_refused(caplog: pytest.LogCaptureFixture) -> None:
    with client() as http:
        for version in ("99.0.0", "99.0.0", "not a version", "9" * 5000, ""):
            headers = {"authorization": "Bearer t", "x-sie-sdk-version": version}
            assert http.get("/v1/models", headers=headers).status_code == 200
    assert caplog.text.count("SDK 99.0") == 1


@pytest.mark.parametrize(
    ("theirs", "warned"), [("0.6.1", 0), ("0.7.9", 0), ("0.5.0", 0), ("0.8.0", 1), ("1.6.0", 1), ("x", 0)]
)
def test_skew_is_another_major_or_two_minors(theirs: str, warned: int, caplog: pytest.LogCaptureFixture) -> None:
    skew = Skew("0.6.26")
    for _ in range(3):
        skew(theirs.encode())
    assert len(caplog.records) == warned


def test_what_is_remembered_of_sdks_is_bounded() -> None:
    skew = Skew("0.6.26")
    for number in range(10_000):
        skew(b"0.6.%d" % number)
    assert len(skew._seen) <= 256


def replace(path: Path, text: str) -> None:
    """As a careful writer does: a new file in the place of the old."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)

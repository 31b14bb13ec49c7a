"""Both contracts in one server, and the second alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

import app
from generated.inflection import operations
from generated.sie import operations as first
from handlers.http.access import AccessLog, Line
from handlers.settings import SettingError
from tests.http.fakes import services

CHAT = "/v1/chat/completions"


def client(access: AccessLog | None = None, **settings: Any) -> TestClient[Litestar]:
    made = app.create_app(services(**settings), access or AccessLog(None))
    return TestClient(made, raise_server_exceptions=False)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient[Litestar]]:
    monkeypatch.setenv("SIE_INFLECTION_PREFIX", "/second")
    with client() as made:
        yield made


def test_both_contracts_answer_in_their_own_envelope(both: TestClient[Litestar]) -> None:
    mine, theirs = (both.post(prefix + CHAT, json={"model": "org/chat"}) for prefix in ("", "/second"))
    assert (mine.status_code, theirs.status_code) == (400, 422)
    assert mine.json()["error"]["param"] == "messages"
    assert theirs.json()["detail"][0]["loc"] == ["body", "messages"]


def test_each_serves_its_own_document(both: TestClient[Litestar]) -> None:
    for prefix, module in (("", first), ("/second", operations)):
        with open(module.DOCUMENT, "rb") as file:
            assert both.get(f"{prefix}/openapi.json").content == file.read()


def test_paths_of_one_are_not_paths_of_the_other(both: TestClient[Litestar]) -> None:
    assert both.get("/second/v1/models").status_code == 404
    assert both.get("/inflection/healthz").status_code == 404
    assert both.options(f"/second{CHAT}").headers["allow"] == "POST, OPTIONS"
    wrong = both.get(f"/second{CHAT}")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "OPTIONS, POST")


def test_the_access_log_names_the_whole_path(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Line] = []

    class Gather(AccessLog):
        enabled = True

        def __call__(self, line: Line) -> None:
            lines.append(line)

    with client(Gather(None)) as made:
        made.get("/inflection/healthz")
        made.post(f"/inflection{CHAT}", json={})
    assert [(line.route, line.status) for line in lines] == [
        ("/inflection/healthz", 200),
        (f"/inflection{CHAT}", 422),
    ]


def test_alone_it_has_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEC", "inflection")
    with client() as alone:
        assert alone.get("/healthz").text == alone.get("/readyz").text == "ok"
        assert alone.post(CHAT, json={}).status_code == 422
        assert alone.get("/v1/models").status_code == 404
        assert alone.get("/inflection/healthz").status_code == 404


def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_INFLECTION_PREFIX", "none")
    with client() as made:
        assert made.get("/inflection/healthz").status_code == 404


def test_an_unknown_contract_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEC", "nobody")
    with pytest.raises(SettingError, match="SPEC"):
        client()


@pytest.mark.parametrize("prefix", ["", "/inflection"])
def test_the_page_shows_the_document_beside_it(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    if not prefix:
        monkeypatch.setenv("SPEC", "inflection")
    with client() as made:
        page = made.get(f"{prefix}/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        (shown,) = re.findall(r'spec-url="([^"]+)"', page.text)
        (script,) = re.findall(r'<script src="([^"]+)"', page.text)
        assert made.get(str(page.url.join(shown))).json()["info"]["title"] == "Inflection chat completions"
        first_time = made.get(str(page.url.join(script)))
        assert (first_time.status_code, first_time.headers["content-type"][:15]) == (200, "text/javascript")
        again = made.get(str(page.url.join(script)), headers={"if-none-match": first_time.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("prefix", ["", "/inflection"])
@pytest.mark.parametrize("operation", operations.ALL, ids=lambda operation: operation.id)
def test_route_is_guarded_exactly_as_its_document_says(
    monkeypatch: pytest.MonkeyPatch, prefix: str, operation: operations.Operation
) -> None:
    if not prefix:
        monkeypatch.setenv("SPEC", "inflection")

    def statuses(tokens: tuple[str, ...]) -> list[int]:
        with client(auth_mode="token", auth_tokens=tokens, admin_token="boss") as made:
            body = {"model": "org/chat"} if operation.method == "POST" else None
            return [
                made.request(
                    operation.method,
                    prefix + operation.path,
                    json=body,
                    headers={} if token is None else {"authorization": f"Bearer {token}"},
                ).status_code
                for token in (None, "wrong", "boss", "t")
            ]

    right = 422 if operation.method == "POST" else 200
    assert statuses(("t",)) == ([401, 401, 401, right] if operation.secured else [right] * 4)
    assert statuses(()) == ([500] * 4 if operation.secured else [right] * 4)

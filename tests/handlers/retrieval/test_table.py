"""Every row of the table, sent to the real routes; and that the table leaves no field and no status out."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

import msgspec
import pytest

from engines.protocol.cluster import DispatchError
from generated.sie import operations
from tests.handlers.document import body_schema, named, properties, takes_anything, touched
from tests.handlers.scripted import at, failed

from .conftest import Client
from .rows_native import encode, extract, score
from .rows_openai import embeddings, rerank
from .table import BASE, Row

ROWS = [*embeddings(), *rerank("/v1/rerank"), *rerank("/v2/rerank"), *encode(), *score(), *extract()]
OPERATIONS = {
    "/v1/embeddings": operations.PROXY_OPENAI_EMBEDDINGS,
    "/v1/rerank": operations.PROXY_RERANK,
    "/v2/rerank": operations.PROXY_RERANK_V2,
    "/v1/encode": operations.PROXY_ENCODE,
    "/v1/score": operations.PROXY_SCORE,
    "/v1/extract": operations.PROXY_EXTRACT,
}
ELSEWHERE = {401, 415}
"""Statuses that come before any handler; tests of the HTTP layer see them on every route."""

NEVER_TAKEN = {"/v1/extract": {"items[].images[].data", "items[].images[].format"}}
"""Parts of what an operation refuses as a whole."""


def told(path: str, body: dict[str, object]) -> tuple[str | None, str | None]:
    """Code and field of an error, from the surface's envelope; a rerank error has its field in the text."""
    match body:
        case {"error": {"code": str(code), "param": str() | None as param}}:
            return code, param
        case {"error": {"code": str(code)}}:
            return code, None
        case {"detail": {"code": str(code), "param": str(param)}}:
            return code, param
        case {"detail": {"code": str(code)}}:
            return code, None
        case {"message": str(message)}:
            return None, message
    raise AssertionError(f"no envelope of {path}: {body}")


def binary(value: Any, key: str = "") -> Any:
    """A body of JSON as MessagePack clients send it: binary instead of base64."""
    if isinstance(value, dict):
        return {key: binary(member, key) for key, member in value.items()}
    if isinstance(value, list):
        return [binary(member, key) for member in value]
    return base64.b64decode(value) if key == "data" and isinstance(value, str) and value != "!" else value


def scripted(client: Client, row: Row) -> None:
    if isinstance(row.fails, DispatchError):
        client.dispatcher.error = row.fails
    elif row.fails is not None:
        client.dispatcher.script = lambda work: failed(row.fails)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
async def test_row(client: Client, row: Row) -> None:
    scripted(client, row)
    response = await client.post(row.path, json=row.request(), headers=dict(row.headers))
    body = response.json()
    assert response.status_code == row.status, body
    if row.status == 200:
        works = client.dispatcher.works
        work = msgspec.msgpack.decode(msgspec.msgpack.encode(works[0]))
        assert {path: at(work, path) for path in row.reaches} == dict(row.reaches)
        assert {path: at(body, path) for path in row.answers} == dict(row.answers)
        assert {name: getattr(client.dispatcher.routes[0], name) for name in row.goes} == dict(row.goes)
        if row.inert:
            await client.post(row.path, json=BASE[row.path])
            one, other = (msgspec.structs.replace(work, request_id="") for work in works)
            assert one == other
        return
    assert client.dispatcher.works == [] or row.fails  # refused before any work
    code, param = told(row.path, body)
    if row.code is not None and not row.path.endswith("/rerank"):
        assert code == row.code, body
    if row.param is not None and row.path.endswith("/rerank"):
        assert param is not None and row.param in param, body
    elif row.param is not None:
        assert param == row.param, body


NATIVE = [row for row in ROWS if "/org" in row.path and row.body != "x"]


@pytest.mark.parametrize("row", NATIVE, ids=lambda row: row.id)
async def test_row_in_messagepack(client: Client, row: Row) -> None:
    """The native operations hold the same rules for both encodings of a body."""
    scripted(client, row)
    request = msgspec.msgpack.encode(binary(row.request()))
    headers = {**row.headers, "content-type": "application/msgpack"}
    response = await client.post(row.path, content=request, headers=headers)
    body = response.json()
    assert response.status_code == row.status, body
    if row.status != 200 and row.code is not None:
        assert told(row.path, body)[0] == row.code


def operation_of(row: Row) -> str:
    """The key of the row's operation in ``OPERATIONS``."""
    return next(path for path in OPERATIONS if row.path == path or row.path.startswith(f"{path}/"))


def test_no_row_stands_twice() -> None:
    assert [name for name, count in Counter(row.id for row in ROWS).items() if count > 1] == []


def test_every_row_that_succeeds_says_what_comes_of_it() -> None:
    assert [row.id for row in ROWS if row.status == 200 and not row.has_effect] == []


@pytest.mark.parametrize("path", OPERATIONS)
def test_every_declared_status_has_a_row(path: str) -> None:
    seen = {row.status for row in ROWS if operation_of(row) == path}
    assert set(OPERATIONS[path].responses) - seen == ELSEWHERE
    assert seen <= set(OPERATIONS[path].responses)


@pytest.mark.parametrize("path", OPERATIONS)
def test_every_property_of_the_document_has_rows(path: str) -> None:
    """Wherever it stands: one that is taken and says what becomes of it, and one that refuses a wrong value by name."""
    rows = [row for row in ROWS if operation_of(row) == path]
    known = dict(properties(body_schema(OPERATIONS[path])))
    taken = {member for row in rows if row.status == 200 for member in touched(row.change)}
    refused = named(row.param for row in rows if row.status != 200)
    assert known
    assert set(known) - taken == NEVER_TAKEN.get(path, set())
    assert sorted(name for name, schema in known.items() if name not in refused and not takes_anything(schema)) == []


@pytest.mark.parametrize("path", OPERATIONS)
def test_every_header_of_the_document_has_rows(path: str) -> None:
    rows = [row for row in ROWS if operation_of(row) == path]
    sent = {name for row in rows for name in row.headers}
    assert {parameter.name for parameter in OPERATIONS[path].parameters if parameter.location == "header"} <= sent

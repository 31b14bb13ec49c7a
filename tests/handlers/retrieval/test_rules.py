"""Every row of the table, sent to the real routes."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from .conftest import Client
from .rules import ROWS, Row


def told(path: str, body: dict[str, object]) -> tuple[str | None, str | None]:
    """Code and field of an error, from the surface's envelope; a rerank error has its field in the text."""
    match body:
        case {"error": {"code": str(code), "param": str() | None as param}}:
            return code, param
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
async def test_rule(client: Client, row: Row) -> None:
    response = await client.post(row.path, json=row.request())
    body = response.json()
    assert response.status_code == row.status, body
    if row.status == 200:
        assert len(client.dispatcher.works) == 1
        return
    assert client.dispatcher.works == []  # refused before any work
    code, param = told(row.path, body)
    if row.code is not None:
        assert code == row.code, body
    if row.param is not None and row.path.endswith("/rerank"):
        assert param is not None and row.param in param, body
    elif row.param is not None:
        assert param == row.param, body


@pytest.mark.parametrize("row", [row for row in ROWS if "/org" in row.path and row.body != "x"], ids=lambda row: row.id)
async def test_rule_in_messagepack(client: Client, row: Row) -> None:
    """The native operations hold the same rules for both encodings of a body."""
    request = msgspec.msgpack.encode(binary(row.request()))
    response = await client.post(row.path, content=request, headers={"content-type": "application/msgpack"})
    body = response.json()
    assert response.status_code == row.status, body
    if row.status != 200 and row.code is not None:
        assert told(row.path, body)[0] == row.code

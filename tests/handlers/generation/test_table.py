"""Every row of the four operations, sent to the real routes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from generated.sie import models

from .conftest import Client
from .rows_chat import rows as chat
from .rows_text import rows as text
from .table import ABSENT, Row

ROWS = [*chat(), *text()]


def at(value: Any, path: str) -> Any:
    """A member of a work item; ``ABSENT`` where the item has its default, which does not travel."""
    for step in path.split("."):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError):
            return ABSENT
    return value


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
async def test_row(client: Client, row: Row) -> None:
    response = await client.post(row.url or row.path, json=row.request(), headers=dict(row.headers))
    assert response.status_code == row.status, response.text
    if row.status == 200:
        work = msgspec.msgpack.decode(msgspec.msgpack.encode(client.work))
        assert {path: at(work, path) for path in row.reaches} == dict(row.reaches)
        return
    assert client.dispatcher.works == []  # refused before any work
    error = response.json()["error"]
    assert error["code"] == row.code, error
    assert error["param"] == row.param, error
    assert error["message"]
    kinds = {"model_not_found": "model_not_found"}
    assert error["type"] == kinds.get(error["code"], "invalid_request_error")


def test_no_row_stands_twice() -> None:
    assert [name for name, count in Counter(row.id for row in ROWS).items() if count > 1] == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/generate/org__chat"])
def test_each_field_of_the_document_has_rows(path: str) -> None:
    """A field that the document gains needs rows here."""
    body = {
        "/v1/chat/completions": models.ChatCompletionRequest,
        "/v1/completions": models.CompletionsRequest,
        "/v1/responses": models.ResponsesRequest,
    }.get(path, models.GenerateRequest)
    rows = [row for row in ROWS if row.path == path]
    taken = {name.split(".")[0] for row in rows if row.status == 200 for name in row.change}
    refused = {name.split(".")[0] for row in rows if row.status != 200 for name in row.change}
    fields = set(body.__struct_fields__)
    assert fields <= taken
    assert fields <= refused

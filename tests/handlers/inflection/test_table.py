"""Every row, sent to the real routes."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from generated.inflection import models
from handlers.inflection.envelopes import location
from tests.handlers.scripted import at

from .conftest import Client
from .rows import ROWS, Row

ELSEWHERE = {"request_id", "timeout_sec"}
"""Fields whose effect is not in the work item; ``test_answers`` shows it."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
async def test_row(client: Client, row: Row) -> None:
    response = await client.chat(**row.body)
    assert response.status_code == row.status, response.text
    if row.status == 200:
        work = msgspec.msgpack.decode(msgspec.msgpack.encode(client.work), strict=False)
        assert {path: at(work, path) for path in row.reaches} == dict(row.reaches)
        return
    assert client.dispatcher.works == []  # refused before any work
    body = response.json()
    if row.status == 404:
        assert body["code"] == row.type
        return
    (fault,) = msgspec.convert(body, models.HTTPValidationError).detail
    assert fault.type == row.type
    assert fault.loc[: len(location(row.param))] == location(row.param), fault
    assert fault.msg


def test_no_row_stands_twice() -> None:
    assert [body for body, count in Counter(str(row.body) for row in ROWS).items() if count > 1] == []


def test_each_field_of_the_document_has_rows() -> None:
    """A field that the document gains needs rows here."""
    taken = {name for row in ROWS if row.status == 200 for name in row.body}
    refused = {name for row in ROWS if row.status != 200 for name in row.body}
    fields = set(models.ChatCompletionRequest.__struct_fields__)
    assert fields - ELSEWHERE <= taken
    assert fields <= refused

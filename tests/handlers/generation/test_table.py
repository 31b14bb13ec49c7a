"""Every row of the four operations, sent to the real routes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from generated.sie import models
from handlers.errors import Failure
from handlers.generation.chat_rules import CHAT_RULES
from handlers.generation.completions_rules import COMPLETIONS_RULES
from handlers.generation.generate_rules import GENERATE_RULES
from handlers.generation.message_rules import MESSAGE_RULES
from handlers.generation.responses_rules import RESPONSES_RULES
from tests.handlers.document import DOCUMENT
from tests.handlers.scripted import at

from .conftest import Client, events
from .rows_chat import rows as chat
from .rows_text import rows as text
from .table import BASE, Row

ROWS = [*chat(), *text()]
REQUESTS = {
    "/v1/chat/completions": "ChatCompletionRequest",
    "/v1/completions": "CompletionsRequest",
    "/v1/responses": "ResponsesRequest",
    "/v1/generate/org__chat": "GenerateRequest",
}
SCHEMAS = DOCUMENT["components"]["schemas"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
async def test_row(client: Client, row: Row) -> None:
    response = await client.post(row.url or row.path, json=row.request(), headers=dict(row.headers))
    assert response.status_code == row.status, response.text
    if row.status == 200:
        work = msgspec.msgpack.decode(msgspec.msgpack.encode(client.work))
        assert {path: at(work, path) for path in row.reaches} == dict(row.reaches)
        assert {name: getattr(client.dispatcher.timeouts[0], name) for name in row.limits} == dict(row.limits)
        streamed = response.headers["content-type"].startswith("text/event-stream")
        said = events(response.content) if streamed else response.json()
        assert {path: at(said, path) for path in row.answers} == dict(row.answers)
        if row.inert:
            await client.post(row.url or row.path, json=BASE[row.path], headers=dict(row.headers))
            one, other = (msgspec.structs.replace(work, request_id="") for work in client.dispatcher.works)
            assert one == other
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


def properties(schema: Any, path: str = "", within: frozenset[str] = frozenset()) -> Iterator[str]:
    """The path of each property of a schema and of what is in it; ``[]`` stands for the items of an array."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in within:
            yield from properties(SCHEMAS[name], path, within | {name})
        return
    for branch in (branch for key in ("allOf", "anyOf", "oneOf") for branch in schema.get(key, ())):
        yield from properties(branch, path, within)
    for name, member in schema.get("properties", {}).items():
        at = f"{path}.{name}" if path else name
        yield at
        yield from properties(member, at, within)
    if isinstance(schema.get("items"), dict):
        yield from properties(schema["items"], f"{path}[]", within)


def members(value: Any, path: str) -> Iterator[str]:
    """The paths of a value and of what is in it, in the same form."""
    yield path
    if isinstance(value, dict):
        for name, member in value.items():
            yield from members(member, f"{path}.{name}")
    elif isinstance(value, list):
        for member in value:
            yield from members(member, f"{path}[]")


def touched(row: Row) -> Iterator[str]:
    for path, value in row.change.items():
        plain = re.sub(r"\.\d+", "[]", path)
        while plain:
            yield plain
            plain = plain.rpartition(".")[0]
        yield from members(value, re.sub(r"\.\d+", "[]", path))


@pytest.mark.parametrize("path", REQUESTS)
def test_each_property_of_the_document_has_rows(path: str) -> None:
    """Wherever it stands: one that is taken and says what becomes of it, and one that refuses a wrong value by name."""
    rows = [row for row in ROWS if row.path == path]
    known = set(properties(SCHEMAS[REQUESTS[path]]))
    taken = {member for row in rows if row.status == 200 and row.has_effect for member in touched(row)}
    refused = {re.sub(r"\[\d+\]", "[]", row.param or "") for row in rows if row.status != 200}
    assert known
    assert sorted(known - taken) == []
    assert sorted(known - refused) == []


def message_rule(rule: Any) -> Any:
    """A rule of messages as a rule of bodies, under its own name."""

    def each(body: Any) -> None:
        for index, message in enumerate(body.messages):
            rule(message, f"messages[{index}]")

    each.__name__ = rule.__name__
    return each


RULES = {
    "/v1/chat/completions": (*CHAT_RULES, *map(message_rule, MESSAGE_RULES)),
    "/v1/completions": COMPLETIONS_RULES,
    "/v1/responses": RESPONSES_RULES,
    "/v1/generate/org__chat": GENERATE_RULES,
}


def broken(rule: Any, row: Row) -> bool:
    """Whether the rule is what the row's refusal comes from."""
    try:
        body = msgspec.convert(row.request(), getattr(models, REQUESTS[row.path]))
    except msgspec.ValidationError:
        return False
    try:
        rule(body)
    except Failure as failure:
        return failure.param == row.param
    return False


@pytest.mark.parametrize(
    ("path", "rule"),
    [(path, rule) for path, rules in RULES.items() for rule in rules],
    ids=lambda at: getattr(at, "__name__", at),
)
def test_each_rule_has_a_row_that_breaks_it(path: str, rule: Any) -> None:
    assert any(broken(rule, row) for row in ROWS if row.path == path and row.status != 200)

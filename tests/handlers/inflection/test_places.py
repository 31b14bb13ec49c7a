"""Where a refusal says that the fault is: in the caller's own words."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.resolution import ENGINE_HEADER, POOL_HEADER
from tests.handlers.scripted import failed

from .conftest import PATH, Client

CALLERS_NAMES: list[tuple[dict[str, Any], list[Any]]] = [
    ({"max_tokens": 9000}, ["max_tokens"]),
    ({"max_completion_tokens": 9000}, ["max_completion_tokens"]),
    ({"max_tokens": 5, "max_completion_tokens": 9000}, ["max_completion_tokens"]),
    ({"model": "org/chat:none"}, ["model"]),
    ({"model": "org/plain", "response_format": {"type": "json_object"}}, ["response_format"]),
    ({"x-trace": 1}, ["x-trace"]),
    ({POOL_HEADER: 1}, [POOL_HEADER]),
    ({"a.b": 1}, ["a.b"]),
    ({"0": 1}, ["0"]),
    ({"": 1}, [""]),
    ({"stream_options": {"0": 1}}, ["stream_options", "0"]),
    ({"messages": [{"role": "robot", "content": ""}]}, ["messages", 0, "role"]),
]


@pytest.mark.parametrize(("body", "steps"), CALLERS_NAMES, ids=lambda value: str(value)[:60])
async def test_a_fault_is_told_where_the_caller_made_it(client: Client, body: dict[str, Any], steps: list[Any]) -> None:
    response = await client.chat(**body)
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["body", *steps]


@pytest.mark.parametrize(("header", "value"), [(ENGINE_HEADER, "none"), (POOL_HEADER, "a b")])
async def test_a_header_at_fault_is_named(client: Client, header: str, value: str) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    response = await client.post(PATH, json=body, headers={header: value})
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["header", header]


@pytest.mark.parametrize(
    ("limit", "param", "named"),
    [
        ({"max_tokens": 8}, "max_tokens", "max_tokens"),
        ({"max_completion_tokens": 8}, "max_tokens", "max_completion_tokens"),
        ({}, "messages", "messages"),
    ],
)
async def test_what_exceeds_the_context_is_named(client: Client, limit: dict[str, int], param: str, named: str) -> None:
    client.dispatcher.admit = False
    client.dispatcher.script = lambda work: [failed("context_exceeded", "too long", param=param)]
    (fault,) = (await client.chat(**limit)).json()["detail"]
    assert (fault["loc"], fault["type"]) == (["body", named], "context_exceeded")

"""The public Open Responses requests: what of them reaches the engine, and the members of the answer."""

from __future__ import annotations

import pytest

from tests.open_responses import REQUESTS, conforms

from .conftest import Client


@pytest.mark.parametrize("name", REQUESTS)
async def test_open_responses(client: Client, name: str) -> None:
    response = await client.post("/v1/responses", json={"model": "org/chat", "input": REQUESTS[name]})
    assert response.status_code == 200
    assert [turn["role"] for turn in client.work.messages] == [turn["role"] for turn in REQUESTS[name]]
    conforms(response.json())

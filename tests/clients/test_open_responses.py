"""The public Open Responses requests on the real model."""

from __future__ import annotations

import httpx
import pytest

from tests.live import CHAT_MODEL, KEY, Server
from tests.open_responses import REQUESTS, conforms

SAID = {"multi-turn": "alice"}
"""A word of the answer, where a model of this size can be relied on."""


@pytest.mark.parametrize("name", REQUESTS)
def test_open_responses(server: Server, name: str) -> None:
    body = {"model": CHAT_MODEL, "input": REQUESTS[name], "temperature": 0}
    answer = httpx.post(
        f"{server.url}/v1/responses", json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=180
    )
    assert answer.status_code == 200, answer.text
    conforms(answer.json())
    assert SAID.get(name, "") in answer.json()["output"][0]["content"][0]["text"].lower()

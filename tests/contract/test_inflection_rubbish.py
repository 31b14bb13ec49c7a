"""Requests to the second contract that once failed with 5xx, took the worker's memory, or could: all are refused by
name, before or while they run, and the worker goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.live import CHAT_MODEL, KEY, Server

USER = [{"role": "user", "content": "Tell me the capital of France."}]
BEAMS = {"use_beam_search": True}
HUGE = {"type": "array", "minItems": 10**9}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def tag(schema: Any) -> str:
    return json.dumps({"format": {"type": "json_schema", "json_schema": schema}})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"{server.url}/inflection", headers={"authorization": f"Bearer {KEY}"}, timeout=120
    ) as one:
        before = server.worker().pid
        yield one
        assert server.worker().pid == before, "the worker was lost"


def post(client: httpx.Client, **body: Any) -> httpx.Response:
    least = {"model": CHAT_MODEL, "messages": USER, "max_tokens": 6, "timeout_sec": 300}
    return client.post("/v1/chat/completions", json={**least, **body})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({**BEAMS, "length_penalty": 1e308}, "length_penalty"),
    ({"chat_template": "{{ '\\ud800' }}"}, "chat_template"),
    ({"chat_template": "{{ ''.__class__ }}"}, "chat_template"),
    ({"chat_template": "{{ 'a' * 10**9 }}"}, "chat_template"),
    (
        {"chat_template": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"},
        "chat_template",
    ),
    ({"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs"),
    ({"bad_words": [" "]}, "bad_words"),
    ({"guided_regex": "(((((a{99}){99}){99}){99}){99})"}, "guided_regex"),
    ({"guided_json": HUGE}, "guided_json"),
    ({"guided_json": {"type": "array", "maxItems": 10**9}}, "guided_json"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": HUGE}}}, "response_format"),
    ({"tools": [{**TOOL, "function": {"name": "a", "parameters": HUGE}}], "tool_choice": "required"}, "tools"),
    ({"guided_grammar": f"start: %json {json.dumps(HUGE)}"}, "guided_grammar"),
    ({"structural_tag": tag(HUGE)}, "structural_tag"),
    ({"structural_tag": "[" * 50_000}, "structural_tag"),
    ({"guided_choice": ["teal"], "bad_words": ["teal"]}, "bad_words"),
    ({"guided_choice": ["a"], "min_tokens": 6}, "min_tokens"),
    ({"guided_regex": "[a-z]{3}", "ignore_eos": True, "stop_token_ids": [5]}, "ignore_eos"),
    ({"tools": [TOOL], "tool_choice": "required", "ignore_eos": True}, "ignore_eos"),
    ({"allowed_token_ids": [2], "min_tokens": 3}, "allowed_token_ids"),
    ({"guided_json": {"pattern": "("}, "guided_whitespace_pattern": " "}, "guided_json"),
    ({"guided_json": {}, "guided_whitespace_pattern": "("}, "guided_whitespace_pattern"),
    ({"max_tokens": 10**6}, "max_tokens"),
    ({"messages": [{"role": "user", "content": "word " * 10_000}]}, "messages"),
    ({"stop_token_ids": [2**31 - 1]}, "stop_token_ids"),
    ({"logit_bias": {"9999999999": 1}}, "logit_bias"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
]


@pytest.mark.parametrize(("body", "member"), REFUSED, ids=[str(body)[:60] for body, _ in REFUSED])
def test_rubbish_is_refused_by_name(client: httpx.Client, body: dict[str, Any], member: str) -> None:
    response = post(client, **body)
    assert response.status_code == 422, response.text
    assert response.json()["detail"][0]["loc"][:2] == ["body", member]


def test_a_contradiction_within_a_stream_is_an_error_event(client: httpx.Client) -> None:
    response = post(client, stream=True, guided_choice=["teal"], bad_words=["teal"])
    assert response.status_code == 200
    *_, last, done = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert "bad_words" in json.loads(last)["error"]["message"]
    assert done == "[DONE]"


@pytest.mark.parametrize(
    "body",
    [
        {"logit_bias": dict.fromkeys(map(str, range(1024)), 100), "temperature": 2},
        {"allowed_token_ids": list(range(49_152)), "bad_words": ["a"] * 1024},
        {"guided_choice": ["teal"], "logit_bias": {"0": 100}},
        {"guided_json": {}, "bad_words": ["x"], "stop": ["}"]},
        {"guided_regex": "[a-z]{3}", "stop_token_ids": [5]},
        {"truncate_prompt_tokens": 2**31 - 1, "repetition_penalty": 5e-324, "top_p": 5e-324, "temperature": 1e-300},
        {"truncate_prompt_tokens": 1, "min_p": 1, "top_k": 2**31 - 1, "seed": -(2**63)},
        {**BEAMS, "n": 2, "best_of": 3, "logprobs": True},
        {**BEAMS, "n": 3, "stream": True, "logprobs": True},
        {**BEAMS, "n": 10, "ignore_eos": True, "length_penalty": -10},
        {
            "messages": [*USER, {"role": "assistant", "content": "It is"}],
            "continue_final_message": True,
            "echo": True,
            "tools": [TOOL],
            "tool_choice": "required",
        },
        {"n": 128, "max_tokens": 1, "temperature": 2},
    ],
)
def test_extremes_are_answered(client: httpx.Client, body: dict[str, Any]) -> None:
    response = post(client, **body)
    assert response.status_code == 200, response.text
    assert '"error"' not in response.text

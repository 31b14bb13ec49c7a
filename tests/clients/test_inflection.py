"""The unmodified OpenAI SDK with ``extra_body`` against the second contract, on the real server and real models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from tests.live import CHAT_MODEL, KEY

CAPITAL: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me the capital of France."}]


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/inflection/v1", api_key=KEY, max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, messages: list[ChatCompletionMessageParam] = CAPITAL, **extra: Any) -> ChatCompletion:
    return client.chat.completions.create(
        model=CHAT_MODEL, messages=messages, max_tokens=24, temperature=0, extra_body=extra
    )


def text(answer: ChatCompletion) -> str:
    return answer.choices[0].message.content or ""


def test_an_answer_has_right_words_and_this_contracts_members(client: openai.OpenAI) -> None:
    answer = ask(client, request_id="mine")
    assert "Paris" in text(answer)
    assert answer.id == "chatcmpl-mine"
    assert answer.system_fingerprint
    told = answer.model_dump()["time_info"]
    assert 0 < told["prompt_time"] <= told["total_time"]


def test_the_model_is_optional(client: openai.OpenAI) -> None:
    answer = client.post("/chat/completions", body={"messages": CAPITAL, "max_tokens": 1}, cast_to=ChatCompletion)
    assert answer.model == CHAT_MODEL


def test_a_stream_says_what_the_whole_says(client: openai.OpenAI) -> None:
    extra = {"echo": True, "continue_final_message": True}
    said: list[ChatCompletionMessageParam] = [*CAPITAL, {"role": "assistant", "content": "The capital of France is"}]
    whole = ask(client, said, **extra)
    stream = client.chat.completions.create(
        model=CHAT_MODEL, messages=said, max_tokens=24, temperature=0, stream=True, extra_body=extra
    )
    pieces = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert pieces == text(whole)
    assert pieces.startswith("The capital of France is Paris")


def test_choices_and_patterns_are_kept(client: openai.OpenAI) -> None:
    assert text(ask(client, guided_choice=["Rome", "Paris"])) in ("Rome", "Paris")
    assert text(ask(client, guided_regex="[0-9]{4}")).isdigit()
    schema = {"type": "object", "properties": {"city": {"type": "boolean"}}, "required": ["city"]}
    assert isinstance(json.loads(text(ask(client, guided_json=schema)))["city"], bool)


def test_beams(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=CHAT_MODEL, messages=CAPITAL, max_tokens=8, n=2, extra_body={"use_beam_search": True}
    )
    first, second = (choice.message.content for choice in answer.choices)
    assert first and second and first != second


def test_prompt_logprobs_and_token_ids(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=CHAT_MODEL,
        messages=CAPITAL,
        max_tokens=4,
        logprobs=True,
        extra_body={"prompt_logprobs": 1, "return_tokens_as_token_ids": True},
    )
    assert answer.usage is not None
    places = answer.model_dump()["prompt_logprobs"]
    assert len(places) == answer.usage.prompt_tokens
    assert places[0] is None
    assert all(entry["logprob"] <= 0 for place in places[1:] for entry in place.values())
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content
    assert all(entry.token.startswith("token_id:") for entry in logprobs.content)


def test_a_template_of_the_callers(client: openai.OpenAI) -> None:
    answer = ask(client, chat_template="The capital of France is", documents=[])
    assert "Paris" in text(answer)
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        ask(client, chat_template="{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")
    assert caught.value.response.json()["detail"][0]["loc"] == ["body", "chat_template"]


@pytest.mark.parametrize(
    ("extra", "member"),
    [
        ({"min_p": 2}, "min_p"),
        ({"guided_decoding_backend": "outlines"}, "guided_decoding_backend"),
        ({"kv_transfer_params": {"a": 1}}, "kv_transfer_params"),
        ({"priority": 1}, "priority"),
        ({"allowed_token_ids": [9_999_999]}, "allowed_token_ids"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_what_is_refused_is_named(client: openai.OpenAI, extra: dict[str, Any], member: str) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        ask(client, **extra)
    body = caught.value.response.json()
    assert body["detail"][0]["loc"][:2] == ["body", member]


def test_timeout_sec_ends_a_long_answer(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(
            model=CHAT_MODEL,
            messages=CAPITAL,
            max_tokens=1500,
            extra_body={"timeout_sec": 0.5, "ignore_eos": True, "min_tokens": 1000},
        )
    assert caught.value.status_code == 504

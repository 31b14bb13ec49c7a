"""Every object that the OpenAI SDK makes of an answer is what the SDK's own annotations say, sync and async.

Every parameter of the SDK's methods is sent: those that the document has are taken, the others are refused by name.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator
from functools import reduce
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest
from openai.types import Completion, CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ParsedChatCompletion
from openai.types.responses import Response

from generated.sie import operations
from tests.clients.conforming import conforms, faults
from tests.live import CHAT_MODEL, EMBEDDING_MODEL, KEY

TOOL = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
NOT_SENT = {"extra_body", "extra_headers", "extra_query", "timeout"}
"""Parameters of the SDK's methods that are not members of the body."""

TAKEN: dict[str, dict[str, Any]] = {
    "chat.completions.create": {
        "model": CHAT_MODEL,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "ann"},
        ],
        "max_tokens": 3,
        "max_completion_tokens": 4,
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.1,
        "n": 2,
        "seed": 7,
        "stop": ["###"],
        "logprobs": True,
        "top_logprobs": 2,
        "logit_bias": {"5": -1},
        "tools": [TOOL],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "response_format": {"type": "text"},
        "stream": False,
        "stream_options": {"include_usage": True},
        "user": "ann",
        "safety_identifier": "a",
        "prompt_cache_key": "k",
    },
    "completions.create": {
        "model": CHAT_MODEL,
        "prompt": "Once upon a time",
        "max_tokens": 4,
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.1,
        "n": 1,
        "seed": 7,
        "stop": "###",
        "stream": False,
    },
    "responses.create": {
        "model": CHAT_MODEL,
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "max_output_tokens": 4,
        "temperature": 0.5,
        "top_p": 0.9,
        "stream": False,
    },
    "embeddings.create": {
        "model": EMBEDDING_MODEL,
        "input": ["a cat", "a dog"],
        "encoding_format": "float",
        "dimensions": 384,
        "user": "ann",
    },
}
LEAST = {
    "chat.completions.create": ("model", "messages", "max_tokens"),
    "completions.create": ("model", "prompt", "max_tokens"),
    "responses.create": ("model", "input", "max_output_tokens"),
    "embeddings.create": ("model", "input"),
}
ANSWERS: dict[str, Any] = {
    "chat.completions.create": ChatCompletion,
    "completions.create": Completion,
    "responses.create": Response,
    "embeddings.create": CreateEmbeddingResponse,
}
SCHEMAS = {
    "chat.completions.create": "ChatCompletionRequest",
    "completions.create": "CompletionsRequest",
    "responses.create": "ResponsesRequest",
    "embeddings.create": "OpenAIEmbeddingRequest",
}
METHODS = list(TAKEN)
STREAMS = [("chat.completions.create", ChatCompletionChunk), ("completions.create", Completion)]


class Caller:
    """Calls methods of a sync or an async client in one way."""

    def __init__(self, client: openai.OpenAI | openai.AsyncOpenAI) -> None:
        self.client = client

    async def __call__(self, method: str, **arguments: Any) -> Any:
        found = reduce(getattr, method.split("."), self.client)(**arguments)  # type: ignore[operator]
        return await found if inspect.isawaitable(found) else found

    async def chunks(self, method: str, **arguments: Any) -> list[Any]:
        """All of a stream."""
        stream = await self(method, stream=True, **arguments)
        return [chunk async for chunk in stream] if hasattr(stream, "__aiter__") else list(stream)


@pytest.fixture(params=["sync", "async"])
async def call(base_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    options: dict[str, Any] = {"base_url": f"{base_url}/v1", "api_key": KEY, "max_retries": 0}
    if request.param == "sync":
        with openai.OpenAI(**options) as client:
            yield Caller(client)
    else:
        async with openai.AsyncOpenAI(**options) as async_client:
            yield Caller(async_client)


def least(method: str) -> dict[str, Any]:
    return {name: TAKEN[method][name] for name in LEAST[method]}


def parameters(method: str) -> set[str]:
    """What the SDK's method can send."""
    found = reduce(getattr, method.split("."), openai.OpenAI(api_key="x"))
    return set(inspect.signature(found).parameters) - NOT_SENT  # type: ignore[arg-type]


def documented(method: str) -> set[str]:
    document = json.loads(Path(operations.DOCUMENT).read_text())
    return set(document["components"]["schemas"][SCHEMAS[method]]["properties"])


@pytest.mark.parametrize("method", METHODS)
def test_each_parameter_that_both_have_is_sent(method: str) -> None:
    assert set(TAKEN[method]) == parameters(method) & documented(method)


@pytest.mark.parametrize("method", METHODS)
async def test_the_least_request(call: Caller, method: str) -> None:
    answer = await call(method, **least(method))
    assert conforms(answer, ANSWERS[method])
    assert answer._request_id


@pytest.mark.parametrize("method", METHODS)
async def test_a_request_with_every_parameter(call: Caller, method: str) -> None:
    answer = await call(method, **TAKEN[method])
    assert conforms(answer, ANSWERS[method])
    if method == "chat.completions.create":
        assert [choice.index for choice in answer.choices] == [0, 1]
        assert all(choice.logprobs.content for choice in answer.choices)


@pytest.mark.parametrize(("method", "chunk"), STREAMS)
@pytest.mark.parametrize("whole", [False, True])
async def test_a_stream(call: Caller, method: str, chunk: Any, whole: bool) -> None:
    given = {name: value for name, value in TAKEN[method].items() if name != "stream"} if whole else least(method)
    found = await call.chunks(method, **given)
    assert len(found) > 1
    for each in found:
        if isinstance(each, Completion) and each.choices[0].finish_reason is None:
            # the SDK has one type for whole answers and chunks; OpenAI's own chunks have null here until the last
            each.choices[0].finish_reason = "stop"
        assert conforms(each, chunk)


@pytest.mark.parametrize("method", METHODS)
async def test_a_raw_answer(call: Caller, method: str) -> None:
    name, _, last = method.rpartition(".")
    raw = await call(f"{name}.with_raw_response.{last}", **least(method))
    assert raw.http_response.status_code == 200
    assert raw.headers["x-request-id"] == raw.headers["x-sie-request-id"]
    parsed = raw.parse()
    assert conforms(await parsed if inspect.isawaitable(parsed) else parsed, ANSWERS[method])


@pytest.mark.parametrize("method", METHODS)
async def test_an_answer_that_is_read_as_it_comes(call: Caller, method: str) -> None:
    name, _, last = method.rpartition(".")
    opened = reduce(getattr, f"{name}.with_streaming_response.{last}".split("."), call.client)(**least(method))  # type: ignore[operator]
    if isinstance(call.client, openai.AsyncOpenAI):
        async with opened as response:
            answer = await response.parse()
    else:
        with opened as response:
            answer = response.parse()
    assert response.http_response.is_closed
    assert conforms(answer, ANSWERS[method])


async def test_a_forced_call(call: Caller) -> None:
    forced = {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}, "max_tokens": 40}
    given = {**least("chat.completions.create"), **forced}
    answer = await call("chat.completions.create", **given)
    assert conforms(answer, ChatCompletion)
    assert answer.choices[0].message.tool_calls[0].function.name == "look"
    found = await call.chunks("chat.completions.create", **given)
    assert all(conforms(each, ChatCompletionChunk) for each in found)


class City(pydantic.BaseModel):
    """What is asked for."""

    name: str = pydantic.Field(max_length=8)
    capital: bool


async def test_a_parsed_answer(call: Caller) -> None:
    given = {**least("chat.completions.create"), "max_tokens": 80, "temperature": 0}
    answer = await call("chat.completions.parse", response_format=City, **given)
    assert conforms(answer, ParsedChatCompletion)
    assert isinstance(answer.choices[0].message.parsed, City)


async def test_models(call: Caller) -> None:
    page = await call("models.list")
    assert conforms(page.data, list[Model])
    assert page.object == "list"
    assert conforms(await call("models.retrieve", model=CHAT_MODEL), Model)
    raw = await call("models.with_raw_response.retrieve", model=EMBEDDING_MODEL)
    assert conforms(raw.parse(), Model)


async def test_embeddings_as_the_sdk_asks_for_them(call: Caller) -> None:
    """Its default is base64, which it makes into numbers itself."""
    assert conforms(await call("embeddings.create", **least("embeddings.create")), CreateEmbeddingResponse)


@pytest.mark.parametrize(
    ("method", "parameter"),
    [(method, name) for method in METHODS for name in sorted(parameters(method) - documented(method))],
)
async def test_a_parameter_that_the_document_lacks_is_refused_by_name(
    call: Caller, method: str, parameter: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await call(method, **{**least(method), parameter: {"any": "thing"}})
    assert refused.value.param == parameter
    assert refused.value.code == "unsupported_field"
    assert refused.value.request_id


def test_the_check_finds_what_is_wrong() -> None:
    right = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    assert list(faults(ChatCompletion.construct(**right), ChatCompletion)) == []
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"created": "1"}, ".created: '1' is no <class 'int'>"),
        ({"created": True}, ".created: True is no <class 'int'>"),
        ({"object": "x"}, ".object: 'x' is none of ('chat.completion',)"),
        ({"choices": {}}, ".choices: {} is no list"),
        ({"id": None}, ".id: None is no <class 'str'>"),
    ]
    for change, said in wrong:
        assert list(faults(ChatCompletion.construct(**right | change), ChatCompletion)) == [said]
    del right["model"]
    assert list(faults(ChatCompletion.construct(**right), ChatCompletion)) == [".model: missing"]
    assert list(faults({"a": [1, "x"]}, dict[str, list[int | None]], "v")) == ["v.a[1]: 'x' is no <class 'int'>"]

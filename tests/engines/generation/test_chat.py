"""Conversations: templates, tools, LoRA adapters, images where there are none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import pytest

from engines.adapters.base import Engine, WorkError
from tests.engines.generation.helpers import answer, user, work

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
CLOCK: dict[str, Any] = {
    "type": "object",
    "properties": {"zone": {"enum": ["CET", "UTC"]}},
    "required": ["zone"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "clock", "parameters": CLOCK}},
]
ASK = user("What is the weather in Paris for 3 days?")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_named_function_is_called_with_arguments_of_its_schema(engine: Engine, stream: bool) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    item = work(ASK, sampling={"max_tokens": 80}, tools=TOOLS, tool_choice=choice, stream=stream)
    got = await answer(engine, item)
    ((name, arguments),) = got.choices[0].joined
    assert name == "weather"
    jsonschema.validate(json.loads(arguments), WEATHER)
    assert got.text == ""
    assert got.choices[0].finish == "tool_calls"
    assert all(len(call.id or "call_") in (5, 29) for call in got.choices[0].calls)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("parallel", [False, True])
async def test_required_calls_are_functions_of_the_request(engine: Engine, stream: bool, parallel: bool) -> None:
    item = work(
        ASK,
        sampling={"max_tokens": 200, "temperature": 1.0, "seed": 4},
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=parallel,
        stream=stream,
    )
    got = await answer(engine, item)
    calls = got.choices[0].joined
    assert calls
    assert parallel or len(calls) == 1
    for index, (name, arguments) in enumerate(calls):
        if got.usage.completion_tokens < 200 or index < len(calls) - 1:
            jsonschema.validate(json.loads(arguments), {"weather": WEATHER, "clock": CLOCK}[name])
    assert got.text == ""
    assert got.choices[0].finish == "tool_calls"


async def test_a_required_call_ends_with_its_arguments(engine: Engine) -> None:
    """The element of the forced list is closed: nothing is written, and paid for, behind the call."""
    empty = {"type": "object", "properties": {}, "additionalProperties": False}
    item = work(
        user("x"),
        sampling={"max_tokens": 250, "temperature": 0},
        tools=[{"type": "function", "function": {"name": "f", "parameters": empty}}],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    got = await answer(engine, item)
    assert got.choices[0].joined == [("f", "{}")]
    assert got.usage.completion_tokens < 60


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
@pytest.mark.parametrize("kind", [{}, {"type": ["object", "null"]}])
async def test_arguments_are_an_object_whatever_else_the_schema_allows(
    engine: Engine, choice: Any, kind: dict[str, Any]
) -> None:
    schema = {**kind, "properties": {"a": {"type": "boolean"}}, "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    for seed in range(3):
        sampling = {"max_tokens": 120, "temperature": 1.5, "seed": seed}
        got = await answer(engine, work(ASK, sampling=sampling, tools=tools, tool_choice=choice))
        assert all(isinstance(json.loads(arguments), dict) for _, arguments in got.choices[0].joined[:1])
        assert got.choices[0].joined
    assert "type" not in schema or schema["type"] == ["object", "null"], "the caller's own stays as it is"


@pytest.mark.parametrize("stream", [False, True])
async def test_strict_tools_leave_the_model_free_not_to_call(engine: Engine, stream: bool) -> None:
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}, TOOLS[1]]  # type: ignore[dict-item]  # a dict
    free = await answer(engine, work(user("Say hello."), tools=TOOLS))
    held = await answer(engine, work(user("Say hello."), tools=strict, stream=stream))
    assert held.text
    assert held.choices[0].finish == free.choices[0].finish
    assert bool(held.choices[0].calls) == bool(free.choices[0].calls)


async def test_a_streamed_forced_call_equals_the_whole_one(engine: Engine) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "clock"}}):
        options: dict[str, Any] = {"sampling": {"max_tokens": 120}, "tools": TOOLS, "tool_choice": choice}
        whole = await answer(engine, work(ASK, **options))
        streamed = await answer(engine, work(ASK, **options, stream=True))
        assert streamed.choices[0].joined == whole.choices[0].joined
        assert len(streamed.choices[0].calls) > len(whole.choices[0].joined)


async def test_tools_are_described_to_a_template_that_knows_none(engine: Engine) -> None:
    without = await answer(engine, work(ASK, sampling={"max_tokens": 1}))
    described = await answer(engine, work(ASK, sampling={"max_tokens": 1}, tools=TOOLS))
    none = await answer(engine, work(ASK, sampling={"max_tokens": 1}, tools=TOOLS, tool_choice="none"))
    assert described.prompt_tokens > without.prompt_tokens + 50
    assert none.prompt_tokens == without.prompt_tokens


async def test_a_tool_conversation_is_replayed(engine: Engine) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny, 21 degrees"},
    ]
    got = await answer(engine, work(messages, tools=TOOLS, sampling={"max_tokens": 8}))
    assert got.prompt_tokens > (await answer(engine, work(ASK, tools=TOOLS, sampling={"max_tokens": 1}))).prompt_tokens


async def test_text_parts_are_joined_without_a_separator(engine: Engine) -> None:
    parts = [{"type": "text", "text": "What is the capital"}, {"type": "text", "text": " of France?"}]
    got = await answer(engine, work([{"role": "user", "content": parts}]))
    whole = await answer(engine, work(user("What is the capital of France?")))
    assert (got.text, got.prompt_tokens) == (whole.text, whole.prompt_tokens)


async def test_each_adapter_answers_in_its_own_way_also_at_the_same_time(engine: Engine) -> None:
    alone = [await answer(engine, work("The capital of France is", lora_adapter=name)) for name in (None, "one", "two")]
    texts = [got.text for got in alone]
    assert len(set(texts)) == 3
    items = [work("The capital of France is", lora_adapter=name) for name in (None, "one", "two")]
    together = await asyncio.gather(*(answer(engine, item) for item in items))
    assert [got.text for got in together] == texts


async def test_an_unknown_adapter_is_refused_by_name(engine: Engine) -> None:
    with pytest.raises(WorkError) as refused:
        await answer(engine, work("x", lora_adapter="three"))
    assert (refused.value.code, refused.value.param) == ("unknown_lora_adapter", "lora_adapter")
    assert "one, two" in refused.value.message

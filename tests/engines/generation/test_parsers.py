"""vLLM's own parsers behind our machines, on a real tokenizer and without an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engines.adapters.base import EngineLoadError
from engines.adapters.vllm.parsers import Parsers
from tests.engines.generation.helpers import user, work

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def tokenizer(weights: Path) -> Any:
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(weights)
    made.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>", "<|python_tag|>"])
    return made


def cuts(text: str) -> list[list[str]]:
    return [[text], list(text), [text[i : i + 3] for i in range(0, len(text), 3)]]


THINKING = [
    ("deepseek_r1", "", "hm</think>Paris", ("hm", "Paris")),
    ("deepseek_r1", "<think>\n", "hm</think>Paris", ("hm", "Paris")),
    ("deepseek_r1", "", "<think>hm</think>Paris", ("hm", "Paris")),
    ("qwen3", "", "<think>hm</think>Paris", ("hm", "Paris")),
    ("qwen3", "<think>\n", "hm</think>Paris", ("hm", "Paris")),
    ("qwen3", "<think>\n\n</think>\n\n", "Paris", ("", "Paris")),
    ("deepseek-r1", "", "hm", ("hm", "")),
]
SPOKEN_OF = "<|im_start|>user\nWhat does </think> mean?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("name", ["deepseek_r1", "qwen3"])
def test_a_message_that_speaks_of_the_marks_ends_no_thinking(tokenizer: Any, name: str) -> None:
    plan = Parsers(tokenizer, None, None, name).plan(work(user("What does </think> mean?")), {})
    prompt = tokenizer.encode(SPOKEN_OF)
    assert tokenizer.convert_tokens_to_ids("</think>") in prompt
    assert plan.answer_begins(prompt) is False
    machine = plan.thinking(prompt)
    assert machine is not None
    steps = [machine.feed("hm</think>Paris"), machine.finish()]
    assert ("".join(step[0] for step in steps), "".join(step[1] for step in steps)) == ("hm", "Paris")


@pytest.mark.parametrize(("name", "opening", "text", "expected"), THINKING)
def test_thinking_is_taken_out_of_the_answer(
    tokenizer: Any, name: str, opening: str, text: str, expected: tuple[str, str]
) -> None:
    parsers = Parsers(tokenizer, None, None, name)
    prompt = tokenizer.encode(f"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{opening}")
    for pieces in cuts(text):
        machine = parsers.plan(work(user("Hi")), {}).thinking(prompt)
        if machine is None:
            assert expected == ("", text)
            continue
        steps = [*(machine.feed(piece) for piece in pieces), machine.finish()]
        assert ("".join(step[0] for step in steps), "".join(step[1] for step in steps)) == expected


def calls_of(parsers: Parsers, pieces: list[str], **fields: Any) -> tuple[str, list[tuple[str | None, str]]]:
    machine = parsers.plan(work(user("Hi"), tools=TOOLS, **fields), {}).tool_calls()
    assert machine is not None
    steps = [*(machine.feed(piece) for piece in pieces), machine.finish()]
    calls: list[tuple[str | None, str]] = []
    for part in (part for step in steps for part in step[1]):
        if part.name is not None:
            calls.append((part.name, part.arguments))
        else:
            calls[-1] = (calls[-1][0], calls[-1][1] + part.arguments)
    return "".join(step[0] for step in steps), calls


FORMATS = {
    "hermes": '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "qwen25": '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "qwen3_coder": (
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
    ),
    "llama3_json": '{"name": "weather", "parameters": {"city": "Paris"}}',
    "pythonic": '[weather(city="Paris")]',
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("count", [1, 2])
def test_vllms_parsers_find_the_calls_of_their_format_for_every_cut(tokenizer: Any, name: str, count: int) -> None:
    if count > 1 and name in ("llama3_json", "pythonic"):
        text = {
            "llama3_json": "; ".join([FORMATS[name]] * 2),
            "pythonic": '[weather(city="Paris"), weather(city="Paris")]',
        }[name]
    else:
        text = "\n".join([FORMATS[name]] * count)
    parsers = Parsers(tokenizer, None, name, None)
    for pieces in cuts(text):
        said, found = calls_of(parsers, pieces)
        assert [(call, json.loads(arguments)) for call, arguments in found] == [("weather", {"city": "Paris"})] * count
        assert said == ""


@pytest.mark.parametrize("name", FORMATS)
def test_an_answer_without_a_call_arrives_whole(tokenizer: Any, name: str) -> None:
    parsers = Parsers(tokenizer, None, name, None)
    for pieces in cuts("It is sunny in Paris."):
        assert calls_of(parsers, pieces) == ("It is sunny in Paris.", [])


def test_only_one_call_where_they_may_not_be_parallel(tokenizer: Any) -> None:
    parsers = Parsers(tokenizer, None, "hermes", None)
    said, found = calls_of(parsers, ["\n".join([FORMATS["hermes"]] * 2)], parallel_tool_calls=False)
    assert (said, len(found)) == ("", 1)


@pytest.mark.parametrize(("tool", "reasoning"), [("no_such_parser", None), (None, "no_such_parser")])
def test_a_parser_that_does_not_exist_is_a_fault_of_the_entry(
    tokenizer: Any, tool: str | None, reasoning: str | None
) -> None:
    with pytest.raises(EngineLoadError, match="no_such_parser"):
        Parsers(tokenizer, None, tool, reasoning)

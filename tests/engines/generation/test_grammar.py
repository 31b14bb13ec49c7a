"""Structured output: every finished answer keeps the promise, what cannot be promised is refused before any work."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from typing import Any

import jsonschema
import pytest

from engines.adapters.base import Engine, WorkError
from engines.protocol.work import Grammar
from tests.engines.generation.helpers import answer, user, work

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
SCHEMAS: list[dict[str, Any]] = [
    PERSON,
    {"anyOf": [{"type": "integer", "minimum": 3, "maximum": 9}, {"const": "none"}]},
    {"type": "number", "multipleOf": 5, "minimum": 10, "maximum": 40},
    {"type": "string", "pattern": "^[a-c]{2,4}$", "maxLength": 3},
    {"allOf": [{"type": "string"}, {"enum": ["yes", "no"]}]},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "null"}], "items": False, "minItems": 2},
    {
        "type": "object",
        "patternProperties": {"^x[0-9]$": {"type": "boolean"}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 2,
    },
]


def schema(value: Any) -> Grammar:
    return Grammar("json_schema", json.dumps(value))


@pytest.mark.parametrize("promised", SCHEMAS)
async def test_a_finished_answer_validates_against_its_schema(engine: Engine, promised: dict[str, Any]) -> None:
    sampling = {"max_tokens": 120, "temperature": 1.2, "n": 2, "seed": 1}
    got = await answer(engine, work(user("Fill the form."), sampling=sampling, grammar=schema(promised)))
    assert {heard.finish for heard in got.choices.values()} == {"stop"}
    for heard in got.choices.values():
        jsonschema.validate(json.loads(heard.text), promised)


async def test_a_json_object_is_an_object(engine: Engine) -> None:
    item = work(user("Give me a small JSON object."), sampling={"max_tokens": 200}, grammar=Grammar("json_object"))
    got = await answer(engine, item)
    if got.choices[0].finish == "stop":
        assert isinstance(json.loads(got.text), dict)
    else:
        assert got.text.startswith("{")


@pytest.mark.parametrize("pattern", [r"\d{3}-\d{4}", r"(yes|no)", r"[a-z]+@[a-z]+\.com", r"^ab?c$", "🙂{2}"])
async def test_a_regex_matches_the_whole_text(engine: Engine, pattern: str) -> None:
    got = await answer(engine, work("Answer: ", sampling={"max_tokens": 40}, grammar=Grammar("regex", pattern)))
    if got.choices[0].finish == "stop":
        assert re.fullmatch(pattern, got.text)


async def test_an_ebnf_grammar_shapes_the_text(engine: Engine) -> None:
    grammar = Grammar("ebnf", 'root ::= "<" digit digit "|" word ">"\ndigit ::= [0-9]\nword ::= "left" | "right"\n')
    got = await answer(engine, work("Answer: ", sampling={"max_tokens": 40}, grammar=grammar))
    assert re.fullmatch(r"<\d\d\|(left|right)>", got.text)


REFUSED = [
    schema({"type": "frobnicate"}),
    schema({"type": "string", "pattern": "("}),
    schema({"type": "array", "uniqueItems": True}),
    schema({"type": "object", "propertyNames": {"pattern": "^a"}}),
    schema({"$ref": "#/$defs/missing"}),
    schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
    schema(["not", "a", "schema"]),
    Grammar("json_schema", "{"),
    Grammar("regex", "("),
    Grammar("regex", "a\x00b"),
    Grammar("regex", "(?=a)b"),
    Grammar("ebnf", "root ::= missing"),
    Grammar("ebnf", "garbage ((("),
    Grammar("ebnf", " "),
]


@pytest.mark.parametrize("grammar", REFUSED, ids=lambda grammar: grammar.value[:30])
async def test_what_cannot_be_enforced_is_refused_and_the_engine_lives(engine: Engine, grammar: Grammar) -> None:
    for item, param in ((work(user("x"), grammar=grammar), "response_format"), (work("x", grammar=grammar), "grammar")):
        with pytest.raises(WorkError) as refused:
            await answer(engine, item)
        assert (refused.value.code, refused.value.param) == ("invalid_request", param)
    assert (await answer(engine, work("1, 2, 3,", sampling={"max_tokens": 2}))).usage


@pytest.mark.parametrize(
    "pattern", ["((((a{0,99}){0,99}){0,99}){0,99}){0,99}b", "(a+)+$", "(x+x+)+y", "(.|..|...)*z", "[a-z]{4000}"]
)
async def test_a_costly_grammar_hurts_nobody_else(engine: Engine, pattern: str) -> None:
    async def costly() -> None:
        # refused or served, as the backend can
        with contextlib.suppress(WorkError):
            await answer(engine, work("a", sampling={"max_tokens": 8}, grammar=Grammar("regex", pattern)))

    late = 0.0

    async def heartbeat() -> None:
        nonlocal late
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            late = max(late, time.perf_counter() - before)

    beat = asyncio.create_task(heartbeat())
    await asyncio.gather(costly(), answer(engine, work("1, 2, 3,", sampling={"max_tokens": 8})))
    beat.cancel()
    assert late < 5.0, "the event loop stood still"


async def test_constraints_of_all_kinds_at_once_do_not_mix(engine: Engine) -> None:
    items = [
        work("a", sampling={"max_tokens": 60}, grammar=schema(SCHEMAS[1])),
        work("b", sampling={"max_tokens": 60}, grammar=Grammar("regex", "[0-9]{5}")),
        work("c", sampling={"max_tokens": 60}, grammar=Grammar("ebnf", 'root ::= "up" | "down"')),
        work("d", sampling={"max_tokens": 8}),
    ]
    number, digits, word, free = await asyncio.gather(*(answer(engine, item) for item in items))
    jsonschema.validate(json.loads(number.text), SCHEMAS[1])
    assert re.fullmatch("[0-9]{5}", digits.text)
    assert word.text in ("up", "down")
    assert free.usage.completion_tokens == 8

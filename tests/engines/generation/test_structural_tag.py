"""Structural tags against llguidance itself, with the tokens of SmolLM2: what each of them lets through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import llguidance
import llguidance.hf
import pytest
from transformers import AutoTokenizer

from engines.adapters.base import WorkError
from engines.adapters.vllm.parsers import Parsers
from engines.adapters.vllm.structural_tag import lark
from engines.protocol.work import Grammar
from tests.engines.generation.helpers import work

SCHEMA: Final = {
    "type": "object",
    "properties": {"n": {"type": "boolean"}},
    "required": ["n"],
    "additionalProperties": False,
}
JSON: Final = {"type": "json_schema", "json_schema": SCHEMA}
YES: Final = '{"n":true}'
ANY: Final = {"type": "any_text"}
CALL: Final = f"<f>{YES}</f>"


def tag(begin: str, content: dict[str, Any], end: str | list[str]) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def word(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def row(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "sequence", "elements": list(elements)}


F: Final = tag("<f>", JSON, "</f>")


def triggered(**flags: bool) -> dict[str, Any]:
    return {"type": "triggered_tags", "triggers": ["<f"], "tags": [F], **flags}


def separated(**flags: bool) -> dict[str, Any]:
    return {"type": "tags_with_separator", "separator": ",", "tags": [F], **flags}


@pytest.fixture(scope="module")
def tokenizer(weights: Path) -> Any:
    return AutoTokenizer.from_pretrained(weights)


class Tags:
    """Compiles structural tags for one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.special = {str(token): index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
        self.tokens = llguidance.hf.from_tokenizer(tokenizer, len(tokenizer))

    def allows(self, structural_tag: Any, text: str) -> bool:
        """Whether ``text`` is an answer that may end here."""
        grammar = lark(json.dumps(structural_tag), self.special, {"whitespace_flexible": False})
        matcher = llguidance.LLMatcher(self.tokens, grammar, log_level=0)
        assert not matcher.get_error(), matcher.get_error()
        ids = self.tokenizer(text, add_special_tokens=False).input_ids
        return matcher.try_consume_tokens(ids) == len(ids) and bool(matcher.is_accepting())


class Plans:
    """Plans of requests with tools, one of them strict."""

    TOOLS: Final = [
        {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}},
        {"type": "function", "function": {"name": 'g"', "parameters": SCHEMA}},
    ]

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def tag(self, parser: str, **fields: Any) -> Any:
        """The structural tag of the calls that the model may make."""
        item = work([{"role": "user", "content": "Hi"}], **{"tools": self.TOOLS, **fields})
        grammar = Parsers(self.tokenizer, None, parser, None).plan(item, {}).strict_calls()
        return grammar and json.loads(grammar.value)


def called(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'


def test_strict_tools_are_held_to_their_schemas_where_the_model_calls_them(tags: Tags) -> None:
    held = Plans(tags.tokenizer).tag("hermes")
    for text in ("It is sunny.", called("f", YES), f"Well. {called('f', YES)}\n{called('g' + chr(34), '{}')} so"):
        assert tags.allows(held, text), text
    for text in (called("f", '{"m":1}'), called("f", "3"), called("h", YES), f"a {called('f', '{}')}"):
        assert not tags.allows(held, text), text
    alone = Plans(tags.tokenizer).tag("hermes", parallel_tool_calls=False)
    assert tags.allows(alone, called("f", YES))
    assert not tags.allows(alone, called("f", YES) * 2)


def test_strict_tools_ask_for_nothing_where_no_call_can_be_made(tags: Tags) -> None:
    plans = Plans(tags.tokenizer)
    assert plans.tag("hermes", tool_choice="none") is None
    assert plans.tag("hermes", tool_choice="required") is None, "its own grammar holds all of them"
    assert plans.tag("hermes", tools=Plans.TOOLS[1:]) is None


@pytest.mark.parametrize(
    ("parser", "fields"),
    [("pythonic", {}), ("hermes", {"grammar": Grammar("json_object", param="response_format")})],
)
def test_strict_tools_that_cannot_be_held_are_refused_by_name(tags: Tags, parser: str, fields: dict[str, Any]) -> None:
    with pytest.raises(WorkError, match="held to a schema") as refused:
        Plans(tags.tokenizer).tag(parser, **fields)
    assert (refused.value.code, refused.value.param) == ("unsupported_field", "tools[0].function.strict")


@pytest.fixture(scope="module")
def tags(tokenizer: Any) -> Tags:
    return Tags(tokenizer)


OLD: Final = {
    "type": "structural_tag",
    "triggers": ["<f"],
    "structures": [
        {"begin": "<f>", "schema": SCHEMA, "end": "</f>"},
        {"begin": "<f2>", "schema": {"type": "integer"}, "end": ""},
    ],
}


@pytest.mark.parametrize("text", ["", "Hi", CALL, f"Hi {CALL} and <f2>12 more", f"{CALL}{CALL}"])
def test_old_form_lets_text_and_whole_tags_through(tags: Tags, text: str) -> None:
    assert tags.allows(OLD, text)


@pytest.mark.parametrize("text", ['<f>{"foo":1}</f>', "<f>3</f>", "<f3>", f"<f>{YES}", '<f2>"a"', "Hi <f"])
def test_old_form_stops_what_its_schemas_do_not_say(tags: Tags, text: str) -> None:
    assert not tags.allows(OLD, text)


@pytest.mark.parametrize(
    ("form", "allowed", "stopped"),
    [
        (word('é"\n😀'), ['é"\n😀'], ["", "e"]),
        (word(""), [""], ["a"]),
        (JSON, [YES], ["{}", '{"m":1}']),
        ({"type": "regex", "pattern": "a/b[0-9]+"}, ["a/b12"], ["a/b", "ab1"]),
        (ANY, ["", "what\never"], []),
        (
            row(word("A:"), {"type": "regex", "pattern": "[0-9]"}, F, ANY),
            [f"A:3{CALL}", f"A:3{CALL} so"],
            ["A:3", CALL],
        ),
        ({"type": "or", "elements": [JSON, word("no")]}, ["no", YES], ["nono", ""]),
        (row(tag("<t>", ANY, "</t>"), JSON), [f"<t>hm</t>{YES}"], [YES, "<t>hm</t>", f"<t>hm{YES}"]),
        (tag("<t>", ANY, ["</t>", "<|im_start|>"]), ["<t>a</t>", "<t>a<|im_start|>"], ["<t>a", "<t>a</t>b"]),
        ({"type": "optional", "content": F}, ["", CALL], [CALL * 2]),
        ({"type": "star", "content": F}, ["", CALL, CALL * 2], ["a"]),
        ({"type": "plus", "content": F}, [CALL, CALL * 2], [""]),
        (triggered(), ["", "a", CALL, f"a{CALL}b{CALL}"], ["a<f"]),
        (triggered(stop_after_first=True), ["", "a", f"a{CALL}"], [f"{CALL}a"]),
        (triggered(at_least_one=True), [CALL, f"{CALL}a", f"{CALL}a{CALL}"], ["", "a", f"a{CALL}"]),
        (triggered(at_least_one=True, stop_after_first=True), [CALL], ["", f"{CALL}a", CALL * 2]),
        (separated(), ["", CALL, f"{CALL},{CALL}"], ["a", f"{CALL},"]),
        (separated(stop_after_first=True), ["", CALL], [f"{CALL},{CALL}"]),
        (separated(at_least_one=True), [CALL, f"{CALL},{CALL}"], [""]),
        (
            {"type": "triggered_tags", "triggers": ["<file_sep>"], "tags": [tag("<file_sep>", JSON, "!")]},
            ["a", f"a<file_sep>{YES}!b"],
            ["a<file_sep>b!"],
        ),
    ],
)
def test_new_form(tags: Tags, form: dict[str, Any], allowed: list[str], stopped: list[str]) -> None:
    structural_tag = {"type": "structural_tag", "format": form}
    assert [text for text in allowed if not tags.allows(structural_tag, text)] == []
    assert [text for text in stopped if tags.allows(structural_tag, text)] == []


@pytest.mark.parametrize(
    ("structural_tag", "named"),
    [
        ([], "object"),
        ({}, "format"),
        ({"format": []}, "format"),
        ({"format": {"type": "grammar", "grammar": "root ::= 'a'"}}, "grammar"),
        ({"format": {"type": "any_text", "excludes": ["a"]}}, "excludes"),
        ({"format": {"type": "json_schema", "json_schema": SCHEMA, "style": "qwen_xml"}}, "plain JSON"),
        ({"format": {"type": "json_schema", "json_schema": False}}, "allows something"),
        ({"format": row(ANY, word("a"))}, "free text"),
        ({"format": {"type": "star", "content": ANY}}, "free text"),
        ({"format": tag("a", triggered(), "b")}, "free text"),
        ({"format": tag("a", ANY, [])}, "end"),
        ({"format": tag("a", ANY, [1])}, "end"),  # type: ignore[list-item]  # the fault
        ({"format": row()}, "elements"),
        ({"format": {**triggered(), "triggers": []}}, "triggers"),
        ({"format": {**triggered(), "triggers": [""]}}, "triggers"),
        ({"format": {**triggered(), "triggers": ["<g"]}}, "<f>"),
        ({"format": {**triggered(), "tags": [JSON]}}, "tag"),
        ({"format": {**triggered(), "at_least_one": 1}}, "at_least_one"),
        ({"structures": [], "triggers": ["a"]}, "tags"),
        ({"structures": [{"begin": "a", "schema": 1, "end": ""}], "triggers": ["a"]}, "schema"),
    ],
)
def test_what_cannot_be_enforced_is_named(structural_tag: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        lark(json.dumps(structural_tag), {}, {})

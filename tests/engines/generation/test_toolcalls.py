"""Tool calls and thinking, found in text however it was cut: no model needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.adapters.vllm.parsers import MARKS
from engines.adapters.vllm.thinking import Deferred, Marked, Thinking
from engines.adapters.vllm.toolcalls import JSON_CALL, Automatic, CallPart, Named, Parsed, Required, ToolCalls

TEXT = st.text(st.sampled_from('ab<>/{}[]"\\ \n_:,🙂toolcall'), max_size=12)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
ARGUMENTS = st.dictionaries(WORDS, st.one_of(WORDS, st.integers(), st.lists(WORDS, max_size=2)), max_size=3)
CALLS = st.lists(st.tuples(st.sampled_from(["weather", "clock"]), ARGUMENTS), min_size=1, max_size=3)

Joined = tuple[str, list[tuple[str, str]]]


def hermes(text: str) -> Parsed:
    """What vLLM's parser does with one segment, without its tokenizer."""
    inner = text.partition("<tool_call>")[2].partition("</tool_call>")[0]
    try:
        call = json.loads(inner)
        return Parsed("", (CallPart(call["name"], json.dumps(call["arguments"], ensure_ascii=False)),))
    except (ValueError, KeyError, TypeError):
        return Parsed(text, ())


def join(machine: ToolCalls, pieces: list[str]) -> Joined:
    """Feed a machine and put together what it gives, as a client does."""
    text = ""
    calls: list[tuple[str, str]] = []
    for step in [*(machine.feed(piece) for piece in pieces), machine.finish()]:
        text += step[0]
        for part in step[1]:
            if part.name is not None:
                calls.append((part.name, part.arguments))
            else:
                name, arguments = calls[-1]
                calls[-1] = (name, arguments + part.arguments)
    assert machine.leading <= len(text.encode())
    assert calls or machine.leading == len(text.encode())
    return text, calls


@st.composite
def cuts(draw: Any, texts: st.SearchStrategy[str]) -> tuple[str, list[str]]:
    text = draw(texts)
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
    return text, [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@st.composite
def conversations(draw: Any) -> str:
    """Text with calls, broken calls and half marks between."""
    pieces = draw(
        st.lists(
            st.one_of(
                TEXT,
                st.sampled_from(["<tool_call>", "</tool_call>", "<tool_", "</tool"]),
                st.sampled_from(
                    ['<tool_call>{"name": "clock", "arguments": {', '<tool_call> [{"name":"a","arguments":{}},']
                ),
                st.sampled_from(['<tool_call>{"name": "</tool_call>", "arguments": {}}', '{"name":"b","arguments":{"']),
                st.builds(
                    lambda name, arguments: (
                        f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"
                    ),
                    st.sampled_from(["weather", "clock"]),
                    ARGUMENTS,
                ),
            ),
            max_size=6,
        )
    )
    return "".join(pieces)


AUTOMATIC: list[Callable[[], ToolCalls]] = [
    lambda: Automatic(hermes, "<tool_call>", "</tool_call>"),
    lambda: Automatic(hermes, "<tool_call>", "</tool_call>", at_most=1),
    lambda: Automatic(hermes, "<tool_call>", None),
    lambda: Automatic(hermes, None, None),
    lambda: Automatic(hermes, "<tool_call>", "</tool_call>", head=JSON_CALL),
    lambda: Automatic(hermes, "<tool_call>", "</tool_call>", head=JSON_CALL, at_most=1),
]
FLOWING = AUTOMATIC[4]


@pytest.mark.parametrize("make", AUTOMATIC)
@given(cut=cuts(conversations()))
def test_calls_do_not_depend_on_how_the_text_was_cut(make: Callable[[], ToolCalls], cut: tuple[str, list[str]]) -> None:
    text, pieces = cut
    assert join(make(), pieces) == join(make(), [text])
    assert join(make(), list(text)) == join(make(), [text])


@pytest.mark.parametrize("make", [AUTOMATIC[0], FLOWING])
@given(before=st.text("abc \n", max_size=8), calls=CALLS)
def test_every_call_of_a_well_formed_text_is_found(
    make: Callable[[], ToolCalls], before: str, calls: list[tuple[str, Any]]
) -> None:
    written = "\n".join(
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>" for name, arguments in calls
    )
    machine = make()
    text, found = join(machine, [before + written])
    assert [(name, json.loads(arguments)) for name, arguments in found] == [(n, a) for n, a in calls]
    assert text == (before if before.strip() else "")
    assert machine.leading == len(text.encode())


@given(cut=cuts(TEXT))
def test_text_without_a_call_arrives_whole(cut: tuple[str, list[str]]) -> None:
    text, pieces = cut
    assert join(AUTOMATIC[0](), pieces) == (text, [])


def test_text_that_cannot_be_a_call_is_not_held_back() -> None:
    machine = AUTOMATIC[0]()
    assert machine.feed("Hello <to")[0] == "Hello "
    assert machine.feed("day>")[0] == "<today>"


def test_a_broken_call_is_part_of_the_answer() -> None:
    text, calls = join(AUTOMATIC[0](), ["Well <tool_call>{oops</tool_call> then"])
    assert (text, calls) == ("Well <tool_call>{oops</tool_call> then", [])


CLOCK = '<tool_call>{"name": "clock", "arguments": {"zone": "</tool_call> <é"}}</tool_call>'


def test_arguments_flow_while_they_are_written() -> None:
    machine = FLOWING()
    steps = [machine.feed(character)[1] for character in CLOCK]
    assert [part.name for step in steps for part in step if part.name] == ["clock"]
    flowed = [part.arguments for step in steps for part in step if part.name is None]
    assert "".join(flowed) == '{"zone": "</tool_call> <é"}'
    assert all(len(piece) == 1 for piece in flowed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<tool_call>{"name": "clock", "arguments": {"zone": "C', ("", [("clock", '{"zone": "C')])),
        ('<tool_call>{"name": "clock", "arguments": {}}', ("", [("clock", "{}")])),
        ('<tool_call>{"name": "clock", "arguments": {}} It is noon.', ("It is noon.", [("clock", "{}")])),
        ('<tool_call>{"name": "clock", "arguments": {"a": 1</tool_call> x', (" x", [("clock", '{"a": 1')])),
        ('<tool_call>{"name": "clock", "arguments": {}, "id": 3}</tool_call>.', (".", [("clock", "{}")])),
        (
            '<tool_call>[{"name": "clock", "arguments": {}}, {"name": "weather", "arguments": {"a": []}}]</tool_call>',
            ("", [("clock", "{}"), ("weather", '{"a": []}')]),
        ),
        ('<tool_call>{"arguments": {}, "name": "clock"}</tool_call>', ("", [("clock", "{}")])),
        ('<tool_call>{"name": "clock"}</tool_call>', ('<tool_call>{"name": "clock"}</tool_call>', [])),
    ],
)
def test_calls_that_are_cut_short_or_unusual(text: str, expected: Joined) -> None:
    assert join(FLOWING(), [text]) == join(FLOWING(), list(text)) == expected


def test_at_most_one_call_when_calls_may_not_be_parallel() -> None:
    call = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
    assert join(AUTOMATIC[1](), [call + call]) == ("", [("clock", "{}")])
    assert len(join(AUTOMATIC[0](), [call + call])[1]) == 2


def required(calls: list[tuple[str, Any]], spaced: bool) -> str:
    separators = (", ", ": ") if spaced else (",", ":")
    return json.dumps(
        [{"name": name, "parameters": arguments} for name, arguments in calls],
        separators=separators,
        ensure_ascii=False,
    )


@given(data=st.data(), calls=CALLS, spaced=st.booleans())
def test_required_calls_are_read_from_their_array(data: Any, calls: list[tuple[str, Any]], spaced: bool) -> None:
    text, pieces = data.draw(cuts(st.just(required(calls, spaced))))
    said, found = join(Required(), pieces)
    assert said == ""
    assert [(name, json.loads(arguments)) for name, arguments in found] == [(n, a) for n, a in calls]
    assert join(Required(), [text]) == (said, found)


@given(data=st.data(), calls=CALLS)
def test_required_calls_that_were_cut_short_are_the_same_for_every_cut(data: Any, calls: list[tuple[str, Any]]) -> None:
    whole = required(calls, False)
    text, pieces = data.draw(cuts(st.just(whole[: data.draw(st.integers(0, len(whole)))])))
    assert join(Required(), pieces) == join(Required(), [text])


@given(cut=cuts(TEXT))
def test_the_text_of_a_named_call_is_its_arguments(cut: tuple[str, list[str]]) -> None:
    text, pieces = cut
    assert join(Named("clock"), pieces) == ("", [("clock", text)] if text else [])


def split(machine: Thinking, pieces: list[str]) -> tuple[str, str]:
    steps = [*(machine.feed(piece) for piece in pieces), machine.finish()]
    return "".join(step[0] for step in steps), "".join(step[1] for step in steps)


THOUGHTS = st.lists(st.one_of(TEXT, st.sampled_from(["<think>", "</think>", "<th", "</thi"])), max_size=6).map("".join)


@pytest.mark.parametrize("open", [False, True])
@given(cut=cuts(THOUGHTS))
def test_thinking_does_not_depend_on_how_the_text_was_cut(open: bool, cut: tuple[str, list[str]]) -> None:
    text, pieces = cut
    assert split(Marked("<think>", "</think>", open=open), pieces) == split(
        Marked("<think>", "</think>", open=open), [text]
    )


@pytest.mark.parametrize(
    ("open", "text", "expected"),
    [
        (False, "<think>hm</think>Paris", ("hm", "Paris")),
        (False, "\n<think>hm</think>Paris", ("hm", "Paris")),
        (True, "hm</think>Paris", ("hm", "Paris")),
        (True, "<think>hm</think>Paris", ("hm", "Paris")),
        (True, "hm", ("hm", "")),
        (False, "Paris", ("", "Paris")),
        (False, "<thin", ("", "<thin")),
        (True, "hm</thi", ("hm</thi", "")),
        (False, "<think>a</think>b</think>c", ("a", "b</think>c")),
    ],
)
def test_thinking_never_shows_in_the_answer(open: bool, text: str, expected: tuple[str, str]) -> None:
    assert split(Marked("<think>", "</think>", open=open), list(text)) == expected


@given(cut=cuts(THOUGHTS))
def test_a_parser_without_marks_sees_the_whole_text(cut: tuple[str, list[str]]) -> None:
    text, pieces = cut
    assert split(Deferred(lambda whole: (whole[:2], whole[2:])), pieces) == (text[:2], text[2:])


def test_every_marked_parser_exists_in_vllm() -> None:
    from vllm.tool_parsers import ToolParserManager

    assert set(MARKS) <= set(ToolParserManager.list_registered())

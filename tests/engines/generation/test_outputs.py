"""One choice's text, calls and log probabilities, however the engine cut its output: no model needed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.adapters.vllm import outputs as outputs_module
from engines.adapters.vllm.outputs import Choice
from engines.adapters.vllm.thinking import Marked
from engines.adapters.vllm.toolcalls import JSON_CALL, Automatic, Named, Parsed
from tests.engines.generation.helpers import Heard, Recorder

END = 0
VOCABULARY: list[tuple[str, bool]] = [
    ("<|im_end|>", False),
    *((text, True) for text in ("Hel", "lo", " ", "wor", "ld", "\n", "<think>", "</think>", "hm", "<tool_call>")),
    *((text, True) for text in ('{"name": "f", "arguments": {', '"a": 1', "}}", "</tool_call>", "ST", "OP")),
]
IDS = {text: index for index, (text, _) in enumerate(VOCABULARY)}
EMOJI = "🙂".encode()


class Words:
    """A vocabulary of whole words, and of the four bytes of one emoji."""

    def token(self, index: int) -> tuple[str, bytes, bool]:
        if index >= len(VOCABULARY):
            return "\ufffd", EMOJI[index - len(VOCABULARY) :][:1], True
        text, shown = VOCABULARY[index]
        return text, text.encode(), shown


FACE = [len(VOCABULARY) + byte for byte in range(4)]


def outputs(tokens: list[int], sizes: list[int], stop: str | None = None) -> list[Any]:
    """What the engine gives for ``tokens``, so many at a time: whole characters, nothing that may begin ``stop``."""
    words = Words()
    raw = b"".join(
        data for data, shown in ((words.token(token)[1], words.token(token)[2]) for token in tokens) if shown
    )
    whole = raw.decode(errors="ignore")
    cut = whole.find(stop) if stop else -1
    whole = whole[:cut] if cut >= 0 else whole
    made, sent, at = [], "", 0
    while at < len(tokens):
        size = sizes[len(made) % len(sizes)]
        now = tokens[at : at + size]
        at += size
        last = at >= len(tokens)
        shown = b"".join(words.token(token)[1] for token in tokens[:at] if words.token(token)[2]).decode(
            errors="ignore"
        )
        ready = whole if last else whole[: max(0, len(shown) - (len(stop) if stop else 0))]
        text, sent = ready[len(sent) :], max(sent, ready, key=len)
        made.append(
            SimpleNamespace(
                text=text,
                token_ids=now,
                logprobs=[{token: SimpleNamespace(logprob=-0.5, rank=1)} for token in now],
                finish_reason="stop" if last else None,
            )
        )
    return made


def heard(tokens: list[int], sizes: list[int], stop: str | None = None, **machines: Any) -> Heard:
    reply = Recorder()
    reply.admitted()
    choice = Choice(0, reply, vocabulary=Words(), top=1, **machines)  # type: ignore[arg-type]  # a part of the real one
    for output in outputs(tokens, sizes, stop):
        choice.take(output)
    return reply.choices[0]


def described(choice: Heard) -> str:
    return b"".join(entry.bytes for entry in choice.logprobs).decode()


def parse(text: str) -> Parsed:
    return Parsed(text, ())


TOKENS = st.lists(st.sampled_from(["Hel", "lo", " ", "wor", "ld", "\n", "face"]), max_size=12).map(
    lambda words: [token for word in words for token in (FACE if word == "face" else [IDS[word]])]
)
SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(tokens=TOKENS, sizes=SIZES)
def test_entries_are_those_of_the_text_without_the_token_that_ended_it(tokens: list[int], sizes: list[int]) -> None:
    streamed = heard([*tokens, END], sizes)
    whole = heard([*tokens, END], [100])
    assert described(streamed) == described(whole) == whole.text == streamed.text
    assert [entry.token for entry in streamed.logprobs] == [entry.token for entry in whole.logprobs]
    said = told = 0
    for text, entries in streamed.aligned:
        said, told = said + len(text.encode()), told + sum(len(entry.bytes) for entry in entries)
        assert told <= said


@given(tokens=TOKENS, sizes=SIZES)
def test_entries_of_a_stop_string_are_dropped_with_it(tokens: list[int], sizes: list[int]) -> None:
    choice = heard([*tokens, IDS["ST"], IDS["OP"]], sizes, "STOP")
    assert choice.text == described(choice)
    assert "ST" not in choice.text


@given(tokens=TOKENS, sizes=SIZES)
def test_a_token_that_a_stop_string_cut_in_two_is_described_whole(tokens: list[int], sizes: list[int]) -> None:
    choice = heard([*tokens, IDS["Hel"], IDS["ST"]], sizes, "lST")
    assert choice.text.endswith("He")
    assert described(choice) == choice.text + "l"


@given(tokens=TOKENS, sizes=SIZES)
def test_thoughts_are_not_described(tokens: list[int], sizes: list[int]) -> None:
    thought = [IDS["<think>"], IDS["hm"], *tokens, IDS["</think>"]]
    choice = heard([*thought, *tokens, END], sizes, thinking=Marked("<think>", "</think>", open=False))
    assert described(choice) == choice.text == heard([*tokens, END], [1]).text
    assert choice.reasoning.startswith("hm")
    unended = heard(thought[:-1], sizes, thinking=Marked("<think>", "</think>", open=False))
    assert (unended.text, unended.logprobs) == ("", [])


@given(tokens=TOKENS, sizes=SIZES)
def test_calls_and_what_follows_them_are_not_described(tokens: list[int], sizes: list[int]) -> None:
    call = [IDS[text] for text in ("<tool_call>", '{"name": "f", "arguments": {', '"a": 1', "}}", "</tool_call>")]

    def machine() -> Automatic:
        return Automatic(parse, "<tool_call>", "</tool_call>", head=JSON_CALL)

    before = heard([*tokens, END], [1]).text
    choice = heard([*tokens, *call, IDS["Hel"], END], sizes, tool_calls=machine())
    assert described(choice) == (before if before.strip() else "")
    assert choice.text == described(choice) + "Hel"
    assert [(name, json.loads(arguments)) for name, arguments in choice.joined] == [("f", {"a": 1})]
    alone = heard([*tokens, END], sizes, tool_calls=machine())
    assert described(alone) == alone.text == before


@pytest.mark.parametrize("sizes", [[1], [2], [100]])
def test_a_forced_call_has_no_text_and_no_entries(sizes: list[int]) -> None:
    choice = heard([IDS["Hel"], IDS["lo"], END], sizes, tool_calls=Named("f"))
    assert (choice.text, choice.logprobs, choice.joined) == ("", [], [("f", "Hello")])


@pytest.mark.parametrize(("patience", "signs"), [(0.0, True), (1000.0, False)])
def test_a_choice_that_holds_its_text_back_says_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, patience: float, signs: bool
) -> None:
    monkeypatch.setattr(outputs_module, "SIGN_OF_LIFE_S", patience)
    call = [IDS[text] for text in ("<tool_call>", "hm", " ", "hm", "</tool_call>")]
    sent: list[tuple[str, int]] = []

    class Noting(Recorder):
        def delta(self, **fields: Any) -> None:
            sent.append((fields["text"], fields["tokens"]))
            super().delta(**fields)

    reply = Noting()
    reply.admitted()
    choice = Choice(0, reply, tool_calls=Automatic(parse, "<tool_call>", "</tool_call>"))
    for output in outputs([*call, END], [1]):
        choice.take(output)
    assert sum(tokens for _, tokens in sent) == len(call) + 1
    assert (("", 1) in sent[:-1]) is signs
    assert reply.choices[0].text == "<tool_call>hm hm</tool_call>"

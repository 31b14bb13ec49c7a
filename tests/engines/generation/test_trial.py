"""Grammars that would take a worker's whole memory or time end a process of their own instead."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import llguidance
import psutil
import pytest
import pytest_asyncio
from transformers import AutoTokenizer

from engines.adapters.vllm.trial import TooCostly, Trial

FINE = llguidance.LLMatcher.grammar_from_json_schema(json.dumps({"type": "array", "maxItems": 9}))


def schema(value: Any) -> str:
    return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(value))


def children() -> set[int]:
    """The processes in which grammars are tried; an engine of another test may have one."""
    found = psutil.Process().children()
    return {child.pid for child in found if "grammar_child" in " ".join(child.cmdline())}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def trial(weights: Path) -> AsyncIterator[Trial]:
    tokenizer = AutoTokenizer.from_pretrained(weights)
    of_others = children()
    made = Trial(tokenizer, len(tokenizer))
    yield made
    await made.close()
    assert children() <= of_others


async def test_what_compiles_passes(trial: Trial) -> None:
    await trial.run(FINE)
    await trial.run(llguidance.LLMatcher.grammar_from_lark('start: "a" <|im_end|>'))


@pytest.mark.parametrize(
    "grammar",
    [
        schema({"type": "array", "minItems": 10**9}),
        schema({"type": "array", "maxItems": 10**9}),
        schema({"type": "array", "minItems": 2**63}),
        llguidance.LLMatcher.grammar_from_lark('start: %json {"type": "array", "minItems": 1000000000}'),
    ],
)
async def test_what_takes_too_much_is_refused_and_the_next_one_passes(trial: Trial, grammar: str) -> None:
    with pytest.raises(TooCostly):
        await trial.run(grammar)
    await trial.run(FINE)


@pytest.mark.parametrize(
    ("grammar", "named"),
    [
        (schema({"type": "nope"}), "nope"),
        (llguidance.LLMatcher.grammar_from_regex("(((((a{99}){99}){99}){99}){99})"), "too many"),
        (llguidance.LLMatcher.grammar_from_lark("start: nope"), "nope"),
    ],
)
async def test_what_is_wrong_or_cannot_begin_is_named(trial: Trial, grammar: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        await trial.run(grammar)
    await trial.run(FINE)

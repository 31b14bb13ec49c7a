"""ECMA-262 patterns as Python patterns."""

from __future__ import annotations

import re

import jsonschema_rs
import pytest

from codegen.patterns import python_pattern

TEXTS = ["", " ", "a", "a\n", "\n", "1", "٣", "é", "_", "\ufeff", "\x1c", "\x85", "a.b", "12", "[", "a]", "default"]
PATTERNS = [
    *(r"\S", r".*\S.*", r"^\S+$", r"^[\S]+", r"\s", r"^[^\s]*$", r"^\d+$", r"^[\d.]+$", r"^\D$", r"^\w+$", r"^[\w.]+$"),
    *(r"^a$", r"a\$?", r"^.$", r"^a.b$", r"^[.$]$", r"^[[]$", r"[\]]", r"^(?!default$)[a-z]+$", r"^(a|b)?$", r"\u00e9"),
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_translated_pattern_matches_the_same_texts(pattern: str) -> None:
    translated = python_pattern(pattern)
    if translated is None:
        assert pattern == r"^[\S]+"
        return
    truth = jsonschema_rs.validator_for({"pattern": pattern})
    for text in TEXTS:
        assert bool(re.search(translated, text)) is truth.is_valid(text), (pattern, translated, text)


def test_a_dot_stops_at_every_line_end_of_ecma_262() -> None:
    translated = python_pattern("^a.b$")
    assert translated is not None
    assert [end for end in ("\n", "\r", "\u2028", "\u2029", "\x85") if re.search(translated, f"a{end}b")] == ["\x85"]


@pytest.mark.parametrize("pattern", [r"\p{L}", r"(?<name>a)", r"\bword", r"\cA", r"[]", r"\u{1F600}", "("])
def test_a_pattern_without_an_equal_is_left_to_the_second_pass(pattern: str) -> None:
    assert python_pattern(pattern) is None

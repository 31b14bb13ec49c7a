"""Splits the text of a reasoning model into thinking and answer while it arrives.

A state machine over the two marks of vLLM's reasoning parser. It holds back only what may be the beginning of a mark,
so the joined result does not depend on how the text was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

State = Literal["before", "thinking", "answer"]


class Thinking(Protocol):
    """Text in, (thinking, answer) out."""

    def feed(self, text: str) -> tuple[str, str]: ...

    def finish(self) -> tuple[str, str]: ...


class Marked:
    """Thinking between two marks.

    ``open``: the prompt leaves the thinking open, or its template lets the model begin with it unmarked. Otherwise
    text that does not begin with ``start`` is the answer.
    """

    def __init__(self, start: str, end: str, *, open: bool) -> None:
        self._start = start
        self._end = end
        self._open = open
        self._state: State = "before"
        self._held = ""

    def feed(self, text: str) -> tuple[str, str]:
        """Take the next piece of text; return what is now certain to be thinking, and to be the answer."""
        if self._state == "answer":
            return "", text
        text = self._held + text
        self._held = ""
        if self._state == "before":
            begun = text.lstrip()
            if begun.startswith(self._start):
                self._state, text = "thinking", begun[len(self._start) :]
            elif self._start.startswith(begun):
                self._held = text
                return "", ""
            else:
                self._state = "thinking" if self._open else "answer"
        if self._state == "answer":
            return "", text
        thought, mark, rest = text.partition(self._end)
        if mark:
            self._state = "answer"
            return thought, rest
        keep = overlap(text, self._end)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], ""

    def finish(self) -> tuple[str, str]:
        """The text has ended: what was held back was no mark."""
        held, self._held = self._held, ""
        if self._state == "thinking" or (self._state == "before" and self._open):
            return held, ""
        return "", held


class Deferred:
    """For a parser without marks: all text waits for the end, then the parser splits it."""

    def __init__(self, split: Callable[[str], tuple[str, str]]) -> None:
        self._split = split
        self._text: list[str] = []

    def feed(self, text: str) -> tuple[str, str]:
        self._text.append(text)
        return "", ""

    def finish(self) -> tuple[str, str]:
        return self._split("".join(self._text))


def overlap(text: str, mark: str) -> int:
    """Length of the longest end of ``text`` that begins ``mark`` without being all of it."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0

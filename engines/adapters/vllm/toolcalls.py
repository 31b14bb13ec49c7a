"""Finds tool calls in the text of a model while it arrives: three small state machines, one for each way of choosing.

Every machine takes text in pieces of any size and gives the same joined result for every way of cutting it; a
blocking answer is the same machine fed with one piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .thinking import overlap


@dataclass(frozen=True)
class CallPart:
    """A new call (``name`` is set) or more arguments of the last one; ``arguments`` is JSON text or a part of it."""

    name: str | None
    arguments: str


@dataclass(frozen=True)
class Parsed:
    """What a parser makes of a whole text: the answer beside the calls, and the calls with whole arguments."""

    content: str
    calls: tuple[CallPart, ...]


Parse = Callable[[str], Parsed]


class ToolCalls(Protocol):
    """Text in, (answer, parts of calls) out. ``leading``: bytes of the answer that came before the first call."""

    leading: int

    def feed(self, text: str) -> tuple[str, list[CallPart]]: ...

    def finish(self) -> tuple[str, list[CallPart]]: ...


JSON_CALL = re.compile(r'[\s\[,}]*\{\s*"name"\s*:\s*"([^"\\<]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
"""A call as most models write it, up to its arguments. Nothing in it can be part of a mark."""
_AFTER = re.compile(r"[\s}\]]*")


class Automatic:
    """The model chooses: calls stand between the parser's marks.

    Arguments flow while they are written where ``head`` matches the beginning of a call; any other call is parsed when
    it is whole. ``start`` absent: the parser has no mark, so all text waits for the end. ``end`` absent: everything
    from the first mark on waits for the end. Text that looks like a call and is none is part of the answer. White space
    that only separates calls is dropped.
    """

    def __init__(
        self,
        parse: Parse,
        start: str | None,
        end: str | None,
        *,
        at_most: int | None = None,
        head: re.Pattern[str] | None = None,
    ) -> None:
        self._parse = parse
        self._start = start
        self._end = end
        self._head = head if start and end else None
        self._left = at_most
        self._inside = start is None
        self._value: JsonValue | None = None
        self._muted = False
        self._text = ""
        self._searched = 0
        self._blank = ""
        self._flowing = False
        self._called = False
        self.leading = 0

    def feed(self, text: str) -> tuple[str, list[CallPart]]:
        self._text += text
        answer: list[str] = []
        calls: list[CallPart] = []
        while self._step(answer, calls):
            pass
        return "".join(answer), calls

    def finish(self) -> tuple[str, list[CallPart]]:
        answer: list[str] = []
        calls: list[CallPart] = []
        text, self._text = self._text, ""
        if self._value is not None:
            # a call whose end mark is missing: what follows it is no part of it
            rest = _AFTER.sub("", text, count=1) if self._value.over else ""
        elif self._inside and text:
            self._segment(text, answer, calls)
            rest = ""
        else:
            rest = text
        if rest:
            self._say(rest, answer)
        if not self._called:
            answer.append(self._blank)
            self.leading += len(self._blank.encode())
        self._blank = ""
        return "".join(answer), calls

    def _step(self, answer: list[str], calls: list[CallPart]) -> bool:
        """Move on to the next mark or into the next call; false when more text is needed."""
        if self._value is not None and not self._value.over:
            return self._in_arguments(calls)
        if self._inside and self._begins(calls):
            return True
        mark = self._end if self._inside else self._start
        if mark is None:
            return False
        found = self._text.find(mark, self._searched)
        if self._inside:
            if found < 0:
                self._searched = max(0, len(self._text) - len(mark) + 1)
                return False
            whole, self._text = self._text[: found + len(mark)], self._text[found + len(mark) :]
            if self._value is None:
                self._segment(whole, answer, calls)
            self._value = None
        else:
            certain = found if found >= 0 else len(self._text) - overlap(self._text, mark)
            self._say(self._text[:certain], answer)
            self._text = self._text[certain:]
            if found < 0:
                return False
        self._inside = not self._inside
        self._searched = 0
        return True

    def _begins(self, calls: list[CallPart]) -> bool:
        """Whether a call begins here whose arguments can flow: after the mark, or after another call."""
        if self._head is None:
            return False
        found = self._head.match(self._text, 0 if self._value is not None else len(self._start or ""))
        if found is None:
            return False
        self._text = self._text[found.end() :]
        self._searched = 0
        self._value = JsonValue()
        self._muted = not self._counts()
        self._put(CallPart(found.group(1), ""), calls)
        return True

    def _in_arguments(self, calls: list[CallPart]) -> bool:
        assert self._value is not None
        taken = self._value.take(self._text)
        if taken:
            self._put(CallPart(None, self._text[:taken]), calls)
            self._text = self._text[taken:]
        return self._value.over

    def _put(self, part: CallPart, calls: list[CallPart]) -> None:
        self._called = True
        self._flowing = False
        self._blank = ""
        if not self._muted:
            calls.append(part)

    def _counts(self) -> bool:
        """Whether one more call is allowed; it is one from now on."""
        if self._left is None:
            return True
        self._left -= 1
        return self._left >= 0

    def _segment(self, text: str, answer: list[str], calls: list[CallPart]) -> None:
        parsed = self._parse(text)
        if not parsed.calls:
            self._say(text, answer)
            return
        if parsed.content:
            self._say(parsed.content, answer)
        for call in parsed.calls:
            self._muted = not self._counts()
            self._put(call, calls)

    def _say(self, text: str, answer: list[str]) -> None:
        """Text of the answer. White space at its beginning and after a call waits: it may only separate calls."""
        if not self._flowing:
            text = self._blank + text
            self._flowing = bool(text.strip())
            self._blank = "" if self._flowing else text
        if self._flowing:
            answer.append(text)
            if not self._called:
                self.leading += len(text.encode())


class Required:
    """At least one call is forced: the grammar makes the text ``[{"name": ..., "parameters": {...}}, ...]``."""

    _HEAD = re.compile(r'\s*[\[,]?\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"parameters"\s*:\s*', re.DOTALL)

    leading = 0

    def __init__(self) -> None:
        self._head = ""
        self._value: JsonValue | None = None
        self._over = False

    def feed(self, text: str) -> tuple[str, list[CallPart]]:
        parts: list[CallPart] = []
        while text and not self._over:
            text = self._in_head(text, parts) if self._value is None else self._in_value(text, parts)
        return "", parts

    def finish(self) -> tuple[str, list[CallPart]]:
        return "", []

    def _in_head(self, text: str, parts: list[CallPart]) -> str:
        self._head += text
        if self._head.lstrip().startswith("]"):
            self._over = True
            return ""
        found = self._HEAD.match(self._head)
        if found is None or found.end() == len(self._head):
            # white space may follow the colon: the head is over when the value begins
            return ""
        rest, self._head = self._head[found.end() :], ""
        self._value = JsonValue()
        parts.append(CallPart(json.loads(found.group(1)), ""))
        return rest

    def _in_value(self, text: str, parts: list[CallPart]) -> str:
        assert self._value is not None
        taken = self._value.take(text)
        if taken:
            parts.append(CallPart(None, text[:taken]))
        if self._value.over:
            rest = text[taken:].lstrip()
            if not rest:
                return ""
            # the brace that closes the element
            self._value = None
            return rest.removeprefix("}")
        return text[taken:]


class Named:
    """One function is forced: the whole text is its arguments."""

    leading = 0

    def __init__(self, name: str) -> None:
        self._name: str | None = name

    def feed(self, text: str) -> tuple[str, list[CallPart]]:
        if not text:
            return "", []
        name, self._name = self._name, None
        return "", [CallPart(name, text)]

    def finish(self) -> tuple[str, list[CallPart]]:
        return "", []


class JsonValue:
    """Follows one JSON object through its text, to know where it ends: with its brace, or where it is no JSON any more
    because a mark stands outside of its strings."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.over = False

    def take(self, text: str) -> int:
        """How many characters of ``text`` belong to the object."""
        for index, character in enumerate(text):
            if self.over:
                return index
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                self.over = self._depth == 0
            elif character == "<":
                self.over = True
                return index
        return len(text)

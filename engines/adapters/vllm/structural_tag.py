"""Structural tags in llguidance's Lark.

vLLM hands llguidance only tags of the old form, and those without their schemas: what it takes for a schema says
nothing, so that any JSON would pass between the marks. Both forms are therefore translated here:
``{"structures": [{"begin", "schema", "end"}], "triggers": [...]}`` and xgrammar's ``{"format": {"type": ...}}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import llguidance

TEXT: Final = "TEXT"
_MEMBERS: Final[dict[str, frozenset[str]]] = {
    "any_text": frozenset(),
    "const_string": frozenset({"value"}),
    "json_schema": frozenset({"json_schema", "style"}),
    "optional": frozenset({"content"}),
    "or": frozenset({"elements"}),
    "plus": frozenset({"content"}),
    "regex": frozenset({"pattern"}),
    "sequence": frozenset({"elements"}),
    "star": frozenset({"content"}),
    "tag": frozenset({"begin", "content", "end"}),
    "tags_with_separator": frozenset({"tags", "separator", "at_least_one", "stop_after_first"}),
    "triggered_tags": frozenset({"triggers", "tags", "at_least_one", "stop_after_first"}),
}
"""The formats that can be enforced, with their members."""
_REPEATED: Final = {"optional": "?", "plus": "+", "star": "*"}


def lark(text: str, special: Mapping[str, int], options: dict[str, Any]) -> str:
    """The grammar of a structural tag.

    Args:
        text: The structural tag as JSON text.
        special: The special tokens of the vocabulary and their ids.
        options: llguidance's options for each JSON schema (``x-guidance``).

    Raises:
        ValueError: it is malformed, or of a form that cannot be enforced.
    """
    tag = json.loads(text)
    if not isinstance(tag, dict):
        raise ValueError("a structural tag must be an object")
    writer = _Writer(special, options)
    start = writer.format(_old(tag) if "structures" in tag else _part(tag, "format", dict), last=True)
    return "\n".join(["%llguidance {}", f"start: {start}", f"{TEXT}: /(.|\\n)*/", *writer.rules, ""])


def _old(tag: dict[str, Any]) -> dict[str, Any]:
    tags = [
        {
            "type": "tag",
            "begin": _part(one, "begin", str),
            "content": {"type": "json_schema", "json_schema": _part(one, "schema", (dict, bool))},
            "end": _part(one, "end", str),
        }
        for one in _part(tag, "structures", list)
    ]
    return {"type": "triggered_tags", "tags": tags, "triggers": _part(tag, "triggers", list)}


def _part(whole: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(whole, dict) or not isinstance(whole.get(name), kind):
        raise ValueError(f"{name!r} of a structural tag is missing or has the wrong type")
    return whole[name]


def _flag(whole: dict[str, Any], name: str) -> bool:
    return bool(_part(whole, name, bool)) if name in whole else False


class _Writer:
    """Writes rules for formats. What is returned is an expression that can stand within another."""

    def __init__(self, special: Mapping[str, int], options: dict[str, Any]) -> None:
        self.rules: list[str] = []
        self._special = special
        self._options = options

    def format(self, form: dict[str, Any], *, last: bool) -> str:
        """``last``: nothing follows. Only then may text be free, since nothing would tell where it ends."""
        kind = _part(form, "type", str)
        if kind not in _MEMBERS:
            raise ValueError(f"the type {kind!r} cannot be enforced in a structural tag, only {', '.join(_MEMBERS)}")
        unknown = min(form.keys() - _MEMBERS[kind] - {"type"}, default=None)
        if unknown is not None:
            raise ValueError(f"{unknown!r} cannot be enforced in a structural tag's {kind!r}")
        match kind:
            case "const_string":
                return self._text(_part(form, "value", str))
            case "json_schema":
                return self._json(form)
            case "regex":
                return f"/{llguidance.regex_to_lark(_part(form, 'pattern', str))}/"
            case "any_text":
                return self._free(last)
            case "sequence":
                elements = _some(form, "elements")
                return _in_row(
                    self.format(one, last=last and place == len(elements)) for place, one in enumerate(elements, 1)
                )
            case "or":
                return _either(self.format(one, last=last) for one in _some(form, "elements"))
            case "tag":
                return self._tag(form, _part(form, "begin", str), last)
            case "tags_with_separator":
                return self._separated(form)
            case "triggered_tags":
                return self._triggered(form, last)
        return self.format(_part(form, "content", dict), last=False) + _REPEATED[kind]

    def _text(self, text: str) -> str:
        # a special token is none of the bytes that its name has
        token = self._special.get(text)
        return json.dumps(text, ensure_ascii=False) if token is None else f"<[{token}]>"

    def _json(self, form: dict[str, Any]) -> str:
        schema = _part(form, "json_schema", (dict, bool))
        if schema is False or form.get("style", "json") != "json":
            raise ValueError(
                "'json_schema' of a structural tag can only be a schema of plain JSON that allows something"
            )
        said = {} if schema is True else schema
        return f"%json {json.dumps({**said, 'x-guidance': {**self._options, **said.get('x-guidance', {})}})}"

    def _free(self, last: bool) -> str:
        if not last:
            raise ValueError("free text can only end a structural tag, or be all that a tag contains")
        return TEXT

    def _tag(self, tag: dict[str, Any], begin: str, last: bool) -> str:
        """A tag whose first words are ``begin`` (what a trigger has left of them)."""
        content, end = _part(tag, "content", dict), _part(tag, "end", (str, list))
        ends = [end] if isinstance(end, str) else end
        if not ends or not all(isinstance(one, str) for one in ends):
            raise ValueError("'end' of a structural tag is missing or has the wrong type")
        if content.get("type") == "any_text" and all(ends):
            return _in_row([self._text(begin), self._until(content, ends)])
        closed = _either(self._text(one) for one in ends)
        return _in_row([self._text(begin), self.format(content, last=last and not any(ends)), closed])

    def _until(self, content: dict[str, Any], ends: Sequence[str]) -> str:
        """Free text up to the first of ``ends``."""
        self.format(content, last=True)  # its members are known
        return _either(self._up_to(end) for end in ends)

    def _separated(self, form: dict[str, Any]) -> str:
        one = _either(self.format(tag, last=False) for tag in _tags(form))
        more = "" if _flag(form, "stop_after_first") else f" ( {self._text(_part(form, 'separator', str))} {one} )*"
        return f"( {one}{more} )" + ("" if _flag(form, "at_least_one") else "?")

    def _triggered(self, form: dict[str, Any], last: bool) -> str:
        tags, triggers = _tags(form), _some(form, "triggers")
        if not all(isinstance(trigger, str) and trigger for trigger in triggers):
            raise ValueError("'triggers' of a structural tag must be texts that are not empty")
        once = _flag(form, "stop_after_first")
        first = _either(self.format(tag, last=False) for tag in tags) if _flag(form, "at_least_one") else ""
        if first and once:
            return first
        by_trigger: dict[str, list[str]] = {}
        for tag in tags:
            begin = _part(tag, "begin", str)
            trigger = next((trigger for trigger in triggers if begin.startswith(trigger)), None)
            if trigger is None:
                raise ValueError(f"no trigger of the structural tag begins {begin!r}")
            by_trigger.setdefault(trigger, []).append(self._tag(tag, begin.removeprefix(trigger), last=False))
        free = self._free(last)
        tagged = _either(_in_row([self._up_to(trigger), _either(rest)]) for trigger, rest in by_trigger.items())
        return f"( {tagged} | {free} )" if once else f"( {first} {tagged}* {free} )"

    def _up_to(self, mark: str) -> str:
        """A rule for any text with the first ``mark`` after it."""
        name = f"up_to_{len(self.rules)}"
        lazy = "" if mark in self._special else "[lazy]"
        self.rules.append(f"{name}{lazy}: {TEXT} {self._text(mark)}")
        return name


def _some(form: dict[str, Any], name: str) -> list[Any]:
    found: list[Any] = _part(form, name, list)
    if not found:
        raise ValueError(f"{name!r} of a structural tag must not be empty")
    return found


def _tags(form: dict[str, Any]) -> list[dict[str, Any]]:
    tags = _some(form, "tags")
    if any(_part(tag, "type", str) != "tag" for tag in tags):
        raise ValueError("'tags' of a structural tag must be of the type 'tag'")
    return tags


def _in_row(expressions: Iterable[str]) -> str:
    return f"( {' '.join(expressions)} )"


def _either(expressions: Iterable[str]) -> str:
    return f"( {' | '.join(expressions)} )"

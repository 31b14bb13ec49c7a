"""From the text of a validation error to the field at fault.

msgspec reports a fault as text, ``Expected `str`, got `int` - at `$.messages[0].role` ``; tests pin its forms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import msgspec

from ..errors import Failure, InvalidField, UnsupportedField

_AT = re.compile(r" - at `(?:key in )?\$(.*)`$", re.DOTALL)
_KEY = re.compile(r" - at `key` in `\$(.*)`$", re.DOTALL)
_OBJECT = re.compile(r"^Object (contains unknown|missing required) field `(.*?)`(?: - at `\$(.*)`)?$", re.DOTALL)


_CLOSED = (jsonschema_rs.ValidationErrorKind.Enum, jsonschema_rs.ValidationErrorKind.Constant)
_ALTERNATIVES = (
    jsonschema_rs.ValidationErrorKind.AnyOf,
    jsonschema_rs.ValidationErrorKind.OneOfNotValid,
    jsonschema_rs.ValidationErrorKind.OneOfMultipleValid,
)


_PATTERN = re.compile(r"^Expected `str` matching regex (.*)$", re.DOTALL)
_CHARACTERS = re.compile(r"\[([^\]^]*)\](?:\+|\{[\d,]+\})\\+Z'$")


def _in_words(text: str) -> str:
    """A fault without regular expressions: what a text must not be, or what it may consist of."""
    found = _PATTERN.match(text)
    if found is None:
        return text
    characters = _CHARACTERS.search(found[1])
    if characters is None:
        return "The text must not be blank" if found[1].startswith("'[^") else "The text has a form that is not allowed"
    signs = characters[1].replace("A-Za-z", "").replace("0-9", "")
    kinds = [word for word, there in (("letters", "A-Za-z"), ("digits", "0-9")) if there in characters[1]]
    allowed = ", ".join([*kinds, *(f"'{sign}'" for sign in signs)])
    reserved = "; some names are reserved" if "(?!" in found[1] else ""
    return f"The text may only have {allowed}{reserved}"


def _path(text: str | None) -> str:
    """``.a[0].b`` as ``a[0].b``; the keys of a map are not in the text (``[...]``) and are left out."""
    return (text or "").replace("[...]", "").lstrip(".")


def explain(error: msgspec.ValidationError) -> Failure:
    """The failure that a refused body stands for, with the path of the field in ``param``."""
    text = str(error)
    if found := _OBJECT.match(text):
        parent = _path(found[3])
        param = _child(parent, found[2])
        if found[1] == "contains unknown":
            return UnsupportedField(param)
        return InvalidField(param, f"Missing required field '{found[2]}'")
    found = _KEY.search(text) or _AT.search(text)
    if found is None:
        return InvalidField(None, text)
    return InvalidField(_path(found[1]) or None, _in_words(text[: found.start()]))


def explain_schema(error: jsonschema_rs.ValidationError, schema: Mapping[str, Any]) -> Failure:
    """The failure of the second pass with ``schema``. Its instance is not echoed.

    A value of the right type outside the ``enum`` or ``const`` is one that this operation does not support.
    """
    param = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path).lstrip(".")
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        return UnsupportedField(_child(param, kind.unexpected[0]))
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return InvalidField(_child(param, kind.property), f"Missing required field '{kind.property}'")
    if param and isinstance(kind, _CLOSED):
        return UnsupportedField(param, f"This value of '{param}' is not supported by this endpoint")
    if isinstance(kind, _ALTERNATIVES):
        return _no_alternative(error, schema, param)
    return InvalidField(param or None, error.message if len(error.message) <= 300 else error.message[:300] + " ...")


def _no_alternative(error: Any, schema: Mapping[str, Any], param: str) -> Failure:
    """The failure of a value that is none of several things: of the one that it was meant to be, where that shows."""
    begun = [errors[0] for errors in error.kind.context if errors and not _is_of_another_kind(errors[0], error)]
    if len(begun) == 1 and not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.OneOfMultipleValid):
        return explain_schema(begun[0], schema)
    members = _members(error, schema)
    if not members:
        return InvalidField(param or None, "The value matches none of the alternatives that the document allows")
    inside = next((one for one in begun if len(one.instance_path) > len(error.instance_path)), None)
    if inside is not None:
        return explain_schema(inside, schema)
    many = "At least" if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.AnyOf) else "Exactly"
    names = ", ".join(f"'{_child(param, member)}'" for member in members[:-1])
    return InvalidField(param or members[0], f"{many} one of {names} and '{_child(param, members[-1])}' is needed")


def _is_of_another_kind(error: Any, whole: Any) -> bool:
    """Whether an alternative fails by the type of the value itself, as null does for whatever is not null."""
    same = list(error.instance_path) == list(whole.instance_path)
    return same and isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Type)


def _members(error: Any, schema: Any) -> list[str]:
    """The members of which the alternatives of ``schema`` require one each; none where they are anything else."""
    for step in error.schema_path:
        schema = schema[step]
    required = [alternative.get("required", ()) for alternative in schema if isinstance(alternative, dict)]
    named = len(required) == len(schema) > 1 and all(len(names) == 1 for names in required)
    return [names[0] for names in required] if named else []


def _child(parent: str, name: object) -> str:
    return f"{parent}.{name}" if parent else str(name)


def integral(value: Any, *, below: float = 2**63) -> Any:
    """``value`` with every whole float of less than ``below`` as an integer: JSON Schema counts ``1.0`` as one."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < below else value
    if isinstance(value, dict):
        return {key: integral(item, below=below) for key, item in value.items()}
    return [integral(item, below=below) for item in value] if isinstance(value, list) else value

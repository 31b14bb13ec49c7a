"""From the text of a validation error to the field at fault.

msgspec reports a fault as text, ``Expected `str`, got `int` - at `$.messages[0].role` ``; tests pin its forms.
"""

from __future__ import annotations

import re
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
    return InvalidField(_path(found[1]) or None, text[: found.start()])


def explain_schema(error: jsonschema_rs.ValidationError) -> Failure:
    """The failure of the second pass. Its instance is not echoed.

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
        return InvalidField(param or None, "The value matches none of the alternatives that the document allows")
    return InvalidField(param or None, error.message if len(error.message) <= 300 else error.message[:300] + " ...")


def _child(parent: str, name: object) -> str:
    return f"{parent}.{name}" if parent else str(name)


def integral(value: Any, *, below: float = 2**63) -> Any:
    """``value`` with every whole float of less than ``below`` as an integer: JSON Schema counts ``1.0`` as one."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < below else value
    if isinstance(value, dict):
        return {key: integral(item, below=below) for key, item in value.items()}
    return [integral(item, below=below) for item in value] if isinstance(value, list) else value

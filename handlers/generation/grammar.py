"""From ``response_format`` and the native ``grammar`` to the constraint of a work item."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from engines.protocol.work import Grammar
from generated.sie import models

from ..errors import InvalidField, UnsupportedField
from . import schema_limits
from .fields import given

FORMATS: Final = frozenset({"text", "json_object", "json_schema"})
MAX_BYTES: Final = 64 * 1024
_SCHEMA_KEYS: Final = frozenset({"name", "description", "schema", "strict"})
_FORMAT: Final = "response_format.json_schema"


def from_response_format(value: models.ChatCompletionRequestResponseFormat | None) -> Grammar | None:
    """The constraint that a ``response_format`` asks for; ``None`` for absent and for text.

    Raises:
        InvalidField, UnsupportedField: it is none of the three forms, or its schema breaks a limit.
    """
    if value is None or value.type == "text":
        return None
    if value.type == "json_object":
        return Grammar(kind="json_object", param="response_format")
    if value.type != "json_schema":
        raise UnsupportedField(
            "response_format.type", f"Response formats of type '{value.type[:64]}' are not supported"
        )
    return _from_json_schema(given(value.json_schema))


def _from_json_schema(value: dict[str, Any] | None) -> Grammar:
    if value is None or not isinstance(value.get("schema"), dict):
        raise InvalidField(_FORMAT, f"'{_FORMAT}' must be an object with an object 'schema'")
    unknown = next((key for key in value if key not in _SCHEMA_KEYS), None)
    if unknown is not None:
        raise UnsupportedField(f"{_FORMAT}.{unknown}")
    for key, kind in (("name", str), ("description", str), ("strict", bool)):
        if value.get(key) is not None and not isinstance(value[key], kind):
            raise InvalidField(f"{_FORMAT}.{key}", f"'{_FORMAT}.{key}' has the wrong type")
    schema = schema_limits.inline(value["schema"], f"{_FORMAT}.schema")
    return Grammar(
        kind="json_schema",
        value=_text(schema),
        label=value.get("name"),
        strict=value.get("strict") or False,
        param="response_format",
    )


def from_native(value: models.GenerateGrammar | None) -> Grammar | None:
    """The constraint of a native request: exactly one of JSON Schema, regex and EBNF.

    Raises:
        InvalidField, UnsupportedField: none or several of them, too large, or a schema that breaks a limit.
    """
    if value is None:
        return None
    schema, regex, ebnf = given(value.json_schema), given(value.regex), given(value.ebnf)
    label, strict = given(value.label), given(value.strict) or False
    if sum(kind is not None for kind in (schema, regex, ebnf)) != 1:
        raise InvalidField("grammar", "'grammar' needs exactly one of 'json_schema', 'regex' and 'ebnf'")
    if (size := len(msgspec.json.encode(value))) > MAX_BYTES:
        raise InvalidField("grammar", f"The grammar has {size} bytes; at most {MAX_BYTES} are allowed")
    if ebnf is not None:
        if strict:
            raise UnsupportedField("grammar.strict", "'strict' has no meaning for an EBNF grammar")
        return Grammar(kind="ebnf", value=ebnf, label=label, param="grammar")
    if regex is not None:
        return Grammar(kind="regex", value=regex, label=label, strict=strict, param="grammar")
    inlined = schema_limits.inline(schema or {}, "grammar.json_schema")
    return Grammar(kind="json_schema", value=_text(inlined), label=label, strict=strict, param="grammar")


def _text(schema: dict[str, Any]) -> str:
    return msgspec.json.encode(schema).decode()

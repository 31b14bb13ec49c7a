"""Tools of a chat request as the worker takes them."""

from __future__ import annotations

from typing import Any

from generated.sie import models

from ..errors import InvalidField
from . import schema_limits
from .fields import given


def definitions(tools: list[models.ChatCompletionRequestToolsItem] | None) -> list[dict[str, Any]] | None:
    """OpenAI tool objects, parameters within the schema limits and without references.

    Raises:
        InvalidField, UnsupportedField: ``param`` is ``tools[i].function.parameters`` or a path in it.
    """
    if tools is None:
        return None
    return [_definition(tool.function, f"tools[{index}].function") for index, tool in enumerate(tools)]


def _definition(function: models.ChatCompletionRequestToolsItemFunction, path: str) -> dict[str, Any]:
    said: dict[str, Any] = {"name": function.name}
    if (description := given(function.description)) is not None:
        said["description"] = description
    if (parameters := given(function.parameters)) is not None:
        said["parameters"] = schema_limits.inline(parameters, f"{path}.parameters")
        _describes_an_object(said["parameters"], f"{path}.parameters")
    if (strict := given(function.strict)) is not None:
        said["strict"] = strict
    return {"type": "function", "function": said}


def _describes_an_object(schema: dict[str, Any], path: str) -> None:
    """Arguments are an object, whatever else the schema would allow.

    Raises:
        InvalidField: it allows none.
    """
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise InvalidField(f"{path}.type", f"'{path}.type' must be 'object'")


def choice(body: models.ChatCompletionRequest) -> str | dict[str, Any] | None:
    """``auto`` (the default with tools), ``none``, ``required`` or one named function; ``None`` without tools."""
    if given(body.tools) is None:
        return None
    asked = body.tool_choice
    if isinstance(asked, models.ChatCompletionRequestToolChoice):
        return {"type": "function", "function": {"name": asked.function.name}}
    return given(asked) or "auto"


def forced(body: models.ChatCompletionRequest) -> bool:
    """Whether the request demands a tool call."""
    return choice(body) not in (None, "auto", "none")

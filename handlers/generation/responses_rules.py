"""Rules of responses (contract C.3)."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from generated.sie import models

from ..errors import InvalidField, UnsupportedField
from .common_rules import temperature_is_not_too_hot
from .fields import given
from .rules import Rule

Body = models.ResponsesRequest
TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})


def does_not_stream(body: Body) -> None:
    if given(body.stream):
        raise UnsupportedField("stream", "Streaming is not supported by this endpoint; use /v1/chat/completions")


def items_are_messages(body: Body) -> None:
    """Role and content make a message, whatever its type; of another item the type says what is wrong."""
    for index, item in enumerate(body.input if isinstance(body.input, list) else ()):
        missing = next((name for name in ("role", "content") if getattr(item, name) is UNSET), None)
        if missing is None:
            continue
        path = f"input[{index}]"
        if isinstance(item.type, str) and item.type != "message":
            raise UnsupportedField(f"{path}.type", f"Input items of type '{item.type[:64]}' are not supported")
        raise InvalidField(f"{path}.{missing}", f"Missing required field '{missing}'")


def parts_are_text(body: Body) -> None:
    """Parts are text, and have it."""
    for index, item in enumerate(body.input if isinstance(body.input, list) else ()):
        for place, part in enumerate(item.content if isinstance(item.content, list) else ()):
            path = f"input[{index}].content[{place}]"
            if part.type not in TEXT_PARTS:
                raise UnsupportedField(f"{path}.type", f"Content parts of type '{part.type[:64]}' are not supported")
            if given(part.text) is None:
                raise InvalidField(f"{path}.text", f"A part of type '{part.type}' needs 'text'")


RESPONSES_RULES: Final[tuple[Rule[Body], ...]] = (
    does_not_stream,
    items_are_messages,
    parts_are_text,
    temperature_is_not_too_hot,
)

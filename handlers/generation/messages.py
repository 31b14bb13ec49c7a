"""From OpenAI chat messages to those of a work item: one form of each role, texts joined, images by index."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import UNSET, UnsetType

from engines.protocol.work import Image
from generated.sie import models

from . import images
from .fields import given

IMAGE_PARTS: Final = frozenset({"image_url", "input_image"})


@dataclass(slots=True)
class Conversation:
    """Messages as the worker takes them, and the images they refer to by index."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)


def conversation(messages: list[models.ChatCompletionMessage]) -> Conversation:
    """Translate messages that keep the rules of ``message_rules``.

    Raises:
        InvalidField: an image cannot be read; ``param`` is ``messages[i].content[j].image_url``.
    """
    found = Conversation()
    for index, message in enumerate(messages):
        said: dict[str, Any] = {
            "role": role(message.role),
            "content": _content(message.content, f"messages[{index}].content", found.images),
        }
        if (name := given(message.name)) is not None:
            said["name"] = name
        if calls := given(message.tool_calls):
            said["tool_calls"] = [_call(call) for call in calls]
        if (call_id := given(message.tool_call_id)) is not None:
            said["tool_call_id"] = call_id
        found.messages.append(said)
    return found


def role(name: str) -> str:
    """``developer`` is OpenAI's newer word for ``system``."""
    return "system" if name == "developer" else name


def image_url(part: models.ChatCompletionMessageContentItem) -> str | None:
    """The address of an image part, in either of its two forms."""
    value = part.image_url
    if isinstance(value, models.ChatCompletionMessageContentItemImageUrl):
        return value.url
    return given(value)


def _content(
    content: str | list[models.ChatCompletionMessageContentItem] | UnsetType | None, path: str, found: list[Image]
) -> str | list[dict[str, Any]]:
    """Text as one string; with images a list of parts, where neighbouring texts are one."""
    if isinstance(content, str):
        return content
    if content is None or content is UNSET:
        return ""
    parts: list[dict[str, Any]] = []
    for index, part in enumerate(content):
        if part.type in IMAGE_PARTS:
            parts.append({"type": "image", "index": len(found)})
            found.append(images.from_data_uri(image_url(part) or "", f"{path}[{index}].image_url"))
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += given(part.text) or ""
        else:
            parts.append({"type": "text", "text": given(part.text) or ""})
    if any(part["type"] == "image" for part in parts):
        return parts
    return parts[0]["text"] if parts else ""


def _call(call: models.ChatCompletionMessageToolCallsItem) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}

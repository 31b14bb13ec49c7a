"""Rules of chat messages (contract B.4). Each is checked for every message; ``path`` is ``messages[i]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from generated.sie import models

from ..errors import InvalidField, UnsupportedField
from .fields import given
from .images import MAX_IMAGES
from .messages import IMAGE_PARTS, image_url

Message = models.ChatCompletionMessage
TEXT_PARTS: Final = frozenset({"text", "input_text"})


def content_is_given(message: Message, path: str) -> None:
    """Only an assistant that calls tools may say nothing."""
    calls = given(message.tool_calls)
    if given(message.content) is None and not (message.role == "assistant" and calls):
        raise UnsupportedField(f"{path}.content", f"'{path}.content' must be a string or an array of content parts")


def parts_are_known(message: Message, path: str) -> None:
    """Parts are text or images."""
    for index, part in enumerate(_parts(message)):
        if part.type not in TEXT_PARTS | IMAGE_PARTS:
            where = f"{path}.content[{index}].type"
            raise UnsupportedField(where, f"Content parts of type '{part.type[:64]}' are not supported")


def text_parts_have_text(message: Message, path: str) -> None:
    for index, part in enumerate(_parts(message)):
        if part.type in TEXT_PARTS and given(part.text) is None:
            raise InvalidField(f"{path}.content[{index}].text", f"A part of type '{part.type}' needs 'text'")


def image_parts_have_an_address(message: Message, path: str) -> None:
    for index, part in enumerate(_parts(message)):
        if part.type in IMAGE_PARTS and not image_url(part):
            raise InvalidField(f"{path}.content[{index}].image_url", f"A part of type '{part.type}' needs 'image_url'")


def only_assistants_call_tools(message: Message, path: str) -> None:
    if given(message.tool_calls) is not None and message.role != "assistant":
        raise InvalidField(f"{path}.tool_calls", "Only messages of role 'assistant' may have 'tool_calls'")


def tools_answer_a_call(message: Message, path: str) -> None:
    if message.role == "tool" and given(message.tool_call_id) is None:
        raise InvalidField(f"{path}.tool_call_id", "Messages of role 'tool' need 'tool_call_id'")


def only_tools_answer_a_call(message: Message, path: str) -> None:
    if message.role != "tool" and given(message.tool_call_id) is not None:
        raise InvalidField(f"{path}.tool_call_id", "Only messages of role 'tool' may have 'tool_call_id'")


MESSAGE_RULES: Final[tuple[Callable[[Message, str], None], ...]] = (
    only_assistants_call_tools,
    tools_answer_a_call,
    only_tools_answer_a_call,
    content_is_given,
    parts_are_known,
    text_parts_have_text,
    image_parts_have_an_address,
)


def messages_keep_their_rules(body: models.ChatCompletionRequest) -> None:
    """Every message keeps every rule of the table."""
    for index, message in enumerate(body.messages):
        for rule in MESSAGE_RULES:
            rule(message, f"messages[{index}]")


def images_are_few(body: models.ChatCompletionRequest) -> None:
    """At most 16 images in a request."""
    count = sum(part.type in IMAGE_PARTS for message in body.messages for part in _parts(message))
    if count > MAX_IMAGES:
        raise InvalidField("messages", f"{count} images in one request; at most {MAX_IMAGES} are allowed")


def _parts(message: Message) -> list[models.ChatCompletionMessageContentItem]:
    content = given(message.content)
    return content if isinstance(content, list) else []

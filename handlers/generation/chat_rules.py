"""Rules of chat completions (contract B.2, B.3, B.5)."""

from __future__ import annotations

from typing import Final

from generated.sie import models

from ..errors import InvalidField, UnsupportedField
from . import tools
from .common_rules import (
    biases_name_tokens,
    stops_are_not_empty,
    temperature_is_not_too_hot,
    top_logprobs_need_logprobs,
)
from .fields import given
from .grammar import FORMATS
from .message_rules import images_are_few, messages_keep_their_rules
from .rules import Rule

Body = models.ChatCompletionRequest


def best_of_does_not_stream(body: Body) -> None:
    """Ranking needs whole candidates. ``best_of: 1`` ranks nothing."""
    if given(body.stream) and (given(body.best_of) or 1) > 1:
        raise UnsupportedField("best_of", "'best_of' is not supported with 'stream: true'")


def best_of_covers_n(body: Body) -> None:
    best_of, n = given(body.best_of), given(body.n) or 1
    if best_of is not None and best_of < n:
        raise InvalidField("best_of", f"'best_of' ({best_of}) must not be less than 'n' ({n})")


def min_tokens_fit(body: Body) -> None:
    asked = given(body.max_completion_tokens) or given(body.max_tokens)
    least = given(body.min_tokens)
    if asked is not None and least is not None and least > asked:
        raise InvalidField("min_tokens", f"'min_tokens' ({least}) is more than the most allowed tokens ({asked})")


def tool_choice_needs_tools(body: Body) -> None:
    if given(body.tool_choice) is not None and given(body.tools) is None:
        raise InvalidField("tool_choice", "'tool_choice' needs 'tools'")


def named_tool_is_known(body: Body) -> None:
    asked = given(body.tool_choice)
    if isinstance(asked, models.ChatCompletionRequestToolChoice):
        name = asked.function.name
        if all(tool.function.name != name for tool in given(body.tools) or ()):
            raise InvalidField("tool_choice", f"'tool_choice' names '{name[:64]}', which is not among 'tools'")


def forced_tool_has_no_rival(body: Body) -> None:
    """A forced call and a response format are two grammars for one text."""
    wanted = given(body.response_format)
    if tools.forced(body) and wanted is not None and wanted.type != "text":
        raise InvalidField("tool_choice", "A forced 'tool_choice' cannot be combined with this 'response_format'")


def nothing_stops_a_forced_call(body: Body) -> None:
    """Its grammar ends it; any other end would leave broken arguments."""
    stop = given(body.stop)
    if stop and tools.forced(body):
        raise UnsupportedField("stop", "'stop' has no meaning with a forced 'tool_choice'")


def response_format_is_known(body: Body) -> None:
    wanted = given(body.response_format)
    if wanted is not None and wanted.type not in FORMATS:
        message = f"Response formats of type '{wanted.type[:64]}' are not supported"
        raise UnsupportedField("response_format.type", message)


CHAT_RULES: Final[tuple[Rule[Body], ...]] = (
    messages_keep_their_rules,
    images_are_few,
    best_of_does_not_stream,
    best_of_covers_n,
    min_tokens_fit,
    top_logprobs_need_logprobs,
    stops_are_not_empty,
    biases_name_tokens,
    temperature_is_not_too_hot,
    tool_choice_needs_tools,
    named_tool_is_known,
    response_format_is_known,
    forced_tool_has_no_rival,
    nothing_stops_a_forced_call,
)

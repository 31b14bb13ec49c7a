"""What this contract's document cannot say: fields that exclude or need each other, and those nothing here can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from generated.inflection import models

from ..errors import InvalidField, UnsupportedField
from ..generation.fields import given
from ..generation.rules import Rule

Body = models.ChatCompletionRequest

MAX_BEAMS: Final = 10
CONSTRAINTS: Final = ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structural_tag")
_NEEDS_NOTHING: Final[dict[str, str]] = {
    "kv_transfer_params": "This server does not split prompts and answers over several engines",
    "vllm_xargs": "This server has no extensions that take parameters",
    "guided_meta": "The backend takes no options",
}
_TEMPLATE_ARGUMENTS: Final = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "processor_kwargs",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "self",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)


def _neutral(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


def _empty(value: Any) -> bool:
    return not value


_SEARCH_IGNORES: Final[dict[str, Callable[[Any], bool]]] = {
    "temperature": _neutral(0, 1),
    "top_p": _neutral(1),
    "top_k": _neutral(0, -1),
    "min_p": _neutral(0),
    "frequency_penalty": _neutral(0),
    "presence_penalty": _neutral(0),
    "repetition_penalty": _neutral(1),
    "min_tokens": _neutral(0),
    "logit_bias": _empty,
    "stop": _empty,
    "stop_token_ids": _empty,
    "bad_words": _empty,
    "allowed_token_ids": _empty,
    "prompt_logprobs": _neutral(),
    "spaces_between_special_tokens": _neutral(True),
    "priority": _neutral(0),
    **dict.fromkeys(CONSTRAINTS, _neutral()),
}
"""Fields that beam search has no use for, and which of their values say nothing."""


def _forces_a_call(body: Body) -> bool:
    return given(body.tool_choice) not in (None, "auto", "none")


def _strict_call(body: Body) -> str | None:
    """The path of the first ``strict`` of tools that may be called."""
    tools = [] if given(body.tool_choice) == "none" else given(body.tools) or []
    strict = next((place for place, tool in enumerate(tools) if given(tool.function.strict)), None)
    return None if strict is None else f"tools[{strict}].function.strict"


def _constraints(body: Body) -> list[str]:
    """The fields that hold the whole answer to a grammar."""
    asked = [name for name in CONSTRAINTS if given(getattr(body, name)) is not None]
    if (wanted := given(body.response_format)) is not None and wanted.type != "text":
        asked.append("response_format")
    if _forces_a_call(body):
        asked.append("tool_choice")
    return asked


def nothing_is_ignored(body: Body) -> None:
    for name, reason in _NEEDS_NOTHING.items():
        if given(getattr(body, name)):
            raise UnsupportedField(name, reason)


def search_does_not_sample(body: Body) -> None:
    if not given(body.use_beam_search):
        return
    for name, says_nothing in _SEARCH_IGNORES.items():
        value = given(getattr(body, name))
        if value is not None and not says_nothing(value):
            raise UnsupportedField(name, f"'{name}' has no meaning with 'use_beam_search'")
    if (wanted := given(body.response_format)) is not None and wanted.type != "text":
        raise UnsupportedField("response_format", "'response_format' is not supported with 'use_beam_search'")
    if _forces_a_call(body):
        raise UnsupportedField("tool_choice", "A forced call is not supported with 'use_beam_search'")
    if (strict := _strict_call(body)) is not None:
        raise UnsupportedField(strict, "Calls cannot be held to a schema with 'use_beam_search'")


def search_is_narrow(body: Body) -> None:
    if not given(body.use_beam_search):
        return
    for name in ("best_of", "n"):
        if (given(getattr(body, name)) or 1) > MAX_BEAMS:
            raise InvalidField(name, f"'{name}' can be at most {MAX_BEAMS} with 'use_beam_search'")


def length_penalty_needs_a_search(body: Body) -> None:
    if given(body.length_penalty) not in (None, 1.0) and not given(body.use_beam_search):
        raise InvalidField("length_penalty", "'length_penalty' needs 'use_beam_search: true'")


def prompt_logprobs_do_not_stream(body: Body) -> None:
    if given(body.prompt_logprobs) is not None and given(body.stream):
        raise UnsupportedField("prompt_logprobs", "'prompt_logprobs' is not supported with 'stream: true'")


def a_message_is_continued_or_answered(body: Body) -> None:
    if given(body.continue_final_message) and given(body.add_generation_prompt):
        raise InvalidField(
            "continue_final_message", "'continue_final_message' and 'add_generation_prompt' exclude each other"
        )


def something_is_left_of_the_prompt(body: Body) -> None:
    if body.truncate_prompt_tokens == 0:
        raise InvalidField("truncate_prompt_tokens", "'truncate_prompt_tokens' would leave nothing of the prompt")


def template_arguments_have_fields(body: Body) -> None:
    taken = next((name for name in given(body.chat_template_kwargs) or () if name in _TEMPLATE_ARGUMENTS), None)
    if taken is not None:
        raise UnsupportedField(f"chat_template_kwargs.{taken}", f"'{taken}' is not set here")


def bad_words_are_words(body: Body) -> None:
    for place, word in enumerate(given(body.bad_words) or ()):
        if not word.strip():
            raise InvalidField(f"bad_words[{place}]", f"'bad_words[{place}]' must have more than white space")


def one_constraint_at_a_time(body: Body) -> None:
    asked = _constraints(body)
    tokens = given(body.allowed_token_ids)
    if asked and tokens:
        asked.append("allowed_token_ids")  # no token might be left that both allow
    if len(asked) > 1:
        raise InvalidField(asked[1], f"'{asked[1]}' cannot be combined with '{asked[0]}'")


def a_constraint_may_end(body: Body) -> None:
    """Past its end nothing would hold the text."""
    held = [*_constraints(body), *filter(None, [_strict_call(body)])]
    if given(body.ignore_eos) and held:
        raise UnsupportedField("ignore_eos", f"'ignore_eos' cannot be combined with '{held[0]}'")


def nothing_stops_a_forced_call(body: Body) -> None:
    """Its grammar ends it; any other end would leave broken arguments."""
    if not _forces_a_call(body):
        return
    for name in ("stop", "stop_token_ids"):
        if given(getattr(body, name)):
            raise UnsupportedField(name, f"'{name}' has no meaning with a forced 'tool_choice'")


def white_space_stands_in_json(body: Body) -> None:
    if given(body.guided_whitespace_pattern) is None or given(body.guided_json) is not None:
        return
    if (wanted := given(body.response_format)) is None or wanted.type == "text":
        raise InvalidField("guided_whitespace_pattern", "'guided_whitespace_pattern' needs guided JSON")


RULES: Final[tuple[Rule[Body], ...]] = (
    nothing_is_ignored,
    search_does_not_sample,
    search_is_narrow,
    length_penalty_needs_a_search,
    prompt_logprobs_do_not_stream,
    a_message_is_continued_or_answered,
    something_is_left_of_the_prompt,
    template_arguments_have_fields,
    bad_words_are_words,
    one_constraint_at_a_time,
    a_constraint_may_end,
    nothing_stops_a_forced_call,
    white_space_stands_in_json,
)

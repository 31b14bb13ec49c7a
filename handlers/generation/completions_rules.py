"""Rules of completions (contract C.1)."""

from __future__ import annotations

from typing import Final

from generated.sie import models

from ..errors import InvalidField, UnsupportedField
from .common_rules import stops_are_not_empty, temperature_is_not_too_hot
from .fields import given
from .rules import Rule

Body = models.CompletionsRequest


def one_candidate(body: Body) -> None:
    """Several candidates are what chat is for."""
    if (given(body.n) or 1) > 1:
        raise UnsupportedField("n", "'n' above 1 is not supported by this endpoint; use /v1/chat/completions")


def prompt_is_one_text(body: Body) -> None:
    """One string, or an array of one."""
    prompt = body.prompt
    if isinstance(prompt, list) and not (len(prompt) == 1 and isinstance(prompt[0], str)):
        raise UnsupportedField("prompt", "Batches of prompts and token ids are not supported; send one string")
    if not isinstance(prompt, str | list):
        raise InvalidField("prompt", "'prompt' must be a string")


def prompt_text(body: Body) -> str:
    """The prompt of a request that keeps the rules."""
    return body.prompt if isinstance(body.prompt, str) else str(body.prompt[0])


COMPLETIONS_RULES: Final[tuple[Rule[Body], ...]] = (
    prompt_is_one_text,
    one_candidate,
    stops_are_not_empty,
    temperature_is_not_too_hot,
)

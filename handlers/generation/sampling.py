"""From a request's sampling fields to the work item's. Source of ranges and defaults: contract B.2, C.1, C.3, D.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec import UNSET, UnsetType

from engines.protocol.work import Sampling
from generated.sie import models

from ..settings import Settings
from .fields import given

CHAT_MAX_TOKENS: Final = 1024
TEXT_MAX_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class Limit:
    """How many tokens may be generated, and whether that is a default, which gives way to what the context leaves."""

    tokens: int
    default: bool = False

    @classmethod
    def of(cls, asked: int | None, default: int, most: int | None) -> Limit:
        """What was asked for, or the default, at most the model's own ``max_output_tokens``."""
        if asked is not None:
            return cls(asked)
        return cls(default if most is None else min(default, most), default=True)


def chat_limit(body: models.ChatCompletionRequest, settings: Settings, most: int | None) -> Limit:
    """``max_completion_tokens``, else ``max_tokens``, else the configured default, else 1024."""
    asked = given(body.max_completion_tokens)
    return Limit.of(
        given(body.max_tokens) if asked is None else asked, settings.default_max_tokens or CHAT_MAX_TOKENS, most
    )


def chat(body: models.ChatCompletionRequest, limit: Limit) -> Sampling:
    """Sampling of a chat request. ``best_of`` is left out where it changes nothing."""
    n = given(body.n) or 1
    best_of = given(body.best_of)
    return Sampling(
        max_tokens=limit.tokens,
        max_tokens_is_default=limit.default,
        min_tokens=given(body.min_tokens),
        temperature=given(body.temperature),
        top_p=given(body.top_p),
        top_k=given(body.top_k),
        frequency_penalty=given(body.frequency_penalty),
        presence_penalty=given(body.presence_penalty),
        repetition_penalty=given(body.repetition_penalty),
        seed=given(body.seed),
        stop=stops(body.stop),
        logit_bias=token_biases(given(body.logit_bias)),
        logprobs=alternatives(given(body.logprobs), given(body.top_logprobs)),
        n=n,
        best_of=best_of if best_of is not None and best_of > n else None,
    )


def completions(body: models.CompletionsRequest, limit: Limit) -> Sampling:
    """Sampling of a completions request."""
    return Sampling(
        max_tokens=limit.tokens,
        max_tokens_is_default=limit.default,
        temperature=given(body.temperature),
        top_p=given(body.top_p),
        frequency_penalty=given(body.frequency_penalty),
        presence_penalty=given(body.presence_penalty),
        seed=given(body.seed),
        stop=stops(body.stop),
    )


def responses(body: models.ResponsesRequest, limit: Limit) -> Sampling:
    """Sampling of a responses request."""
    return Sampling(
        max_tokens=limit.tokens,
        max_tokens_is_default=limit.default,
        temperature=given(body.temperature),
        top_p=given(body.top_p),
        seed=given(body.seed),
    )


def generate(body: models.GenerateRequest) -> Sampling:
    """Sampling of a native request: its own fields win over ``options.default_sampling``."""
    options = given(body.options) or models.GenerateOptions()
    default = given(options.default_sampling) or models.GenerateDefaultSampling()
    return Sampling(
        max_tokens=body.max_new_tokens,
        min_tokens=given(default.min_new_tokens),
        temperature=_first(given(body.temperature), given(default.temperature)),
        top_p=_first(given(body.top_p), given(default.top_p)),
        top_k=given(default.top_k),
        frequency_penalty=given(body.frequency_penalty),
        presence_penalty=_first(given(body.presence_penalty), given(default.presence_penalty)),
        seed=given(body.seed),
        stop=stops(body.stop),
        stop_tokens=tuple(given(options.stop_tokens) or ()),
        logit_bias=token_biases(given(body.logit_bias)),
        logprobs=alternatives(given(body.logprobs), given(body.top_logprobs)),
    )


def stops(value: str | list[str] | UnsetType | None) -> tuple[str, ...]:
    """Stop strings in the order given, each once."""
    if value is None or value is UNSET:
        return ()
    return (value,) if isinstance(value, str) else tuple(dict.fromkeys(value))


def token_biases(value: dict[str, float] | None) -> dict[int, float] | None:
    """``logit_bias`` by token id; the rules have seen to it that the keys are numbers."""
    return {int(token): bias for token, bias in value.items()} if value else None


def alternatives(asked: bool | None, top: int | None) -> int | None:
    """How many alternatives per token: ``None`` is no logprobs at all, 0 the chosen token alone."""
    return (top or 0) if asked else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)

"""Rules of native generate (contract D)."""

from __future__ import annotations

from typing import Final

from generated.sie import models

from ..errors import InvalidField, UnsupportedField
from .common_rules import (
    biases_name_tokens,
    engine_takes_temperature,
    stops_are_not_empty,
    temperature_is_not_too_hot,
    top_logprobs_need_logprobs,
)
from .fields import given
from .rules import Rule

Body = models.GenerateRequest


def logprobs_need_a_stream(body: Body) -> None:
    """The blocking answer has no member for them, so even ``false`` is refused."""
    if not given(body.stream):
        for name, value in (("logprobs", given(body.logprobs)), ("top_logprobs", given(body.top_logprobs))):
            if value is not None:
                raise UnsupportedField(name, f"'{name}' needs 'stream: true'")


def profile_is_the_default(body: Body) -> None:
    options = given(body.options)
    profile = given(options.profile) if options is not None else None
    if profile not in (None, "default"):
        raise InvalidField("options.profile", "Only 'default'; name another profile in the path as 'model:profile'")


def default_temperature_is_not_too_hot(body: Body) -> None:
    default = default_sampling(body)
    if default is not None:
        engine_takes_temperature("options.default_sampling.temperature", given(default.temperature))


def default_min_tokens_fit(body: Body) -> None:
    default = default_sampling(body)
    least = given(default.min_new_tokens) if default is not None else None
    if least is not None and least > body.max_new_tokens:
        param = "options.default_sampling.min_new_tokens"
        raise InvalidField(param, f"'{param}' ({least}) is more than the most allowed tokens ({body.max_new_tokens})")


def default_sampling(body: Body) -> models.GenerateDefaultSampling | None:
    options = given(body.options)
    return None if options is None else given(options.default_sampling)


GENERATE_RULES: Final[tuple[Rule[Body], ...]] = (
    logprobs_need_a_stream,
    top_logprobs_need_logprobs,
    stops_are_not_empty,
    biases_name_tokens,
    temperature_is_not_too_hot,
    default_temperature_is_not_too_hot,
    default_min_tokens_fit,
    profile_is_the_default,
)


def safe_id(model: str) -> str:
    """The model of the path: in the form ``org__name``, ``bundle:/`` before it or not.

    Raises:
        InvalidField: empty, or with a slash in its name.
    """
    bundle, separator, name = model.rpartition(":/")
    if not name:
        raise InvalidField("model", "The path needs a model id")
    if "/" in name:
        safe = bundle + separator + name.replace("/", "__")
        raise InvalidField("model", f"Model ids in this path have no slashes; use '{safe[:200]}'")
    return model

"""Rules that several generation surfaces share."""

from __future__ import annotations

from typing import Final

from generated.sie import models

from ..errors import InvalidField
from .fields import given

MAX_TOKEN_ID: Final = 2**31 - 1
MAX_TEMPERATURE: Final = 2.0
"""vLLM's limit; the document has none."""


def temperature_is_not_too_hot(
    body: models.ChatCompletionRequest | models.CompletionsRequest | models.ResponsesRequest | models.GenerateRequest,
) -> None:
    engine_takes_temperature("temperature", given(body.temperature))


def engine_takes_temperature(param: str, temperature: float | None) -> None:
    """Refuse by name what the engine would."""
    if temperature is not None and temperature > MAX_TEMPERATURE:
        raise InvalidField(param, f"'{param}' must not be above {MAX_TEMPERATURE:g}")


def top_logprobs_need_logprobs(body: models.ChatCompletionRequest | models.GenerateRequest) -> None:
    if (given(body.top_logprobs) or 0) > 0 and not given(body.logprobs):
        raise InvalidField("top_logprobs", "'top_logprobs' needs 'logprobs: true'")


def stops_are_not_empty(
    body: models.ChatCompletionRequest | models.CompletionsRequest | models.GenerateRequest,
) -> None:
    """An empty stop string would end every answer before it began."""
    stop = given(body.stop)
    if stop is not None and "" in ([stop] if isinstance(stop, str) else stop):
        raise InvalidField("stop", "'stop' must not hold an empty string")


def biases_name_tokens(body: models.ChatCompletionRequest | models.GenerateRequest) -> None:
    """Keys of ``logit_bias`` are decimal digits, says the document; those of token ids are 31 bits wide."""
    for token in given(body.logit_bias) or ():
        if int(token) > MAX_TOKEN_ID:
            raise InvalidField("logit_bias", f"'logit_bias' has the key '{token[:32]}', which is not a token id")

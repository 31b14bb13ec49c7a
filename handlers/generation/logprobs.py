"""Log probabilities in OpenAI's shape. Every number is finite, so that it has a form in JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from engines.protocol.events import TokenLogprob
from generated.sie import models

FLOOR: Final = -9999.0


def finite(logprob: float) -> float:
    """``logprob``, with what JSON cannot say (-inf, NaN) as the floor."""
    return max(logprob, FLOOR) if math.isfinite(logprob) else FLOOR


def content(tokens: Sequence[TokenLogprob]) -> list[models.ChatCompletionTokenLogprob]:
    """The tokens of one delta or of one choice, in order, each with its alternatives."""
    return [
        models.ChatCompletionTokenLogprob(
            token=token.token,
            logprob=finite(token.logprob),
            bytes=list(token.bytes),
            top_logprobs=[
                models.ChatCompletionTopLogprob(
                    token=other.token, logprob=finite(other.logprob), bytes=list(other.bytes)
                )
                for other in token.top
            ],
        )
        for token in tokens
    ]


def of_choice(tokens: Sequence[TokenLogprob]) -> models.ChatCompletionLogprobs:
    """The ``logprobs`` member of a chat choice."""
    return models.ChatCompletionLogprobs(content=content(tokens), refusal=None)

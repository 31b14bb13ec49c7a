"""From raw scores to the relevance of the Cohere routes: a number from 0 to 1, in float64, that keeps the order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

ScoreKind = Literal["logit", "similarity", "maxsim"]


def sigmoid(logit: float) -> float:
    """1 / (1 + e^-x) without overflow."""
    if logit >= 0:
        return 1.0 / (1.0 + math.exp(-logit))
    power = math.exp(logit)
    return power / (1.0 + power)


def relevance(score: float, kind: ScoreKind) -> float:
    """Relevance of one raw score.

    ``logit`` (cross-encoder): the sigmoid, applied once. ``similarity`` (cosine, -1 to 1): (1 + x) / 2, cut to 0..1 for
    what rounding put outside. ``maxsim`` (a sum over the query's tokens, without a bound that the gateway knows):
    (1 + x / (1 + |x|)) / 2, which grows with the score, is 0.5 at 0 and, unlike the sigmoid, does not reach 1.0 at the
    sums of 20 and 30 that are common here.
    """
    match kind:
        case "logit":
            return sigmoid(score)
        case "similarity":
            return min(1.0, max(0.0, (1.0 + score) / 2.0))
        case "maxsim":
            return (1.0 + score / (1.0 + abs(score))) / 2.0


def ranking(scores: Sequence[float]) -> list[int]:
    """Indices by falling raw score, ties by index. Raw, because relevance can saturate where scores still differ.

    Raises:
        ValueError: a score is not finite.
    """
    if not all(map(math.isfinite, scores)):
        raise ValueError("a score is not finite")
    return sorted(range(len(scores)), key=lambda index: -scores[index])

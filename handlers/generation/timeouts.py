"""Time limits of a generation (contract D.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engines.protocol.cluster import Timeouts
from generated.sie import models

from ..settings import Settings
from .fields import given

FIRST_CHUNK: Final = 30.0
INTER_CHUNK: Final = 10.0
OVERALL: Final = 300.0


def limits(
    settings: Settings, runtime: Mapping[str, Any], max_tokens: int, options: models.GenerateOptions | None = None
) -> Timeouts:
    """Limits in seconds: the operator's, else the request's, else the profile's, else 30, 10 and min(300, n/10 + 30).

    ``runtime`` is the profile's. The first chunk never has longer than the whole.
    """
    options = options or models.GenerateOptions()
    overall = _pick(settings.overall_timeout, given(options.overall_timeout_s), runtime.get("overall_timeout_s"))
    first = _pick(
        settings.first_chunk_timeout, given(options.first_chunk_timeout_s), runtime.get("first_chunk_timeout_s")
    )
    inter = _pick(
        settings.inter_chunk_timeout, given(options.inter_chunk_timeout_s), runtime.get("inter_chunk_timeout_s")
    )
    overall = overall or min(OVERALL, max_tokens // 10 + 30.0)
    return Timeouts(overall=overall, first_chunk=min(overall, first or FIRST_CHUNK), inter_chunk=inter or INTER_CHUNK)


def gaps_limited(settings: Settings, runtime: Mapping[str, Any]) -> bool:
    """Whether the operator or the profile, whose ``runtime`` it is, limits the time to and between chunks.

    A blocking answer is then gathered from chunks. Otherwise it comes in one piece, and only its overall limit holds.
    """
    first = _pick(settings.first_chunk_timeout, None, runtime.get("first_chunk_timeout_s"))
    inter = _pick(settings.inter_chunk_timeout, None, runtime.get("inter_chunk_timeout_s"))
    return first is not None or inter is not None


def whole(timeouts: Timeouts) -> Timeouts:
    """The limits of an answer that comes in one piece."""
    return Timeouts(overall=timeouts.overall)


def _pick(operator: float | None, request: float | None, profile: object) -> float | None:
    if operator is not None:
        return operator
    if request is not None:
        return request
    return float(profile) if isinstance(profile, int | float) and profile > 0 else None

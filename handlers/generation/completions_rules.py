"""Rules of completions (contract C.1)."""

from __future__ import annotations

from typing import Final

from generated.sie import models

from ..errors import UnsupportedField
from .common_rules import stops_are_not_empty
from .fields import given
from .rules import Rule

Body = models.CompletionsRequest


def one_candidate(body: Body) -> None:
    """Several candidates are what chat is for."""
    if (given(body.n) or 1) > 1:
        raise UnsupportedField("n", "'n' above 1 is not supported by this endpoint; use /v1/chat/completions")


COMPLETIONS_RULES: Final[tuple[Rule[Body], ...]] = (one_candidate, stops_are_not_empty)

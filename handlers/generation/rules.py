"""Rules: what a document cannot say of a body, one function each, listed in one table per operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

B = TypeVar("B")
Rule = Callable[[B], None]
"""Looks at a decoded body; raises ``InvalidField`` or ``UnsupportedField`` when it breaks the rule."""


def check(rules: Iterable[Rule[B]], body: B) -> None:
    """Apply rules in order; the first that is broken decides.

    Raises:
        Failure: 400.
    """
    for rule in rules:
        rule(body)

"""Small helpers for the optional fields of a request."""

from __future__ import annotations

from typing import TypeVar

from msgspec import UNSET, UnsetType

T = TypeVar("T")


def given(value: T | UnsetType | None) -> T | None:
    """A field's value; ``None`` when it was absent or null, which mean the same."""
    return None if value is UNSET else value


def key(value: str | UnsetType | None) -> str | None:
    """A routing or cache key; empty means absent."""
    return given(value) or None

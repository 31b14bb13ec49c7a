"""Finish reasons of the wire."""

from __future__ import annotations

from typing import Final

_CHAT: Final = frozenset({"stop", "length", "tool_calls"})
_TEXT: Final = frozenset({"stop", "length"})


def chat_reason(native: str, *, called: bool) -> str:
    """``stop``, ``length`` or ``tool_calls``. One that ran out of tokens after a call counts as ``tool_calls``."""
    if called and native in {"length", "stop"}:
        return "tool_calls"
    return native if native in _CHAT else "stop"


def text_reason(native: str) -> str:
    """``stop`` or ``length``."""
    return native if native in _TEXT else "stop"

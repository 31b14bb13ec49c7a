"""Request ids: UUID version 7 (RFC 9562), so that they sort by time."""

from __future__ import annotations

from functools import lru_cache
from random import getrandbits
from time import time_ns
from typing import Final

_VARIANT: Final = "89ab"


def request_id() -> str:
    """A new UUIDv7 as text: 48 bits of milliseconds since the epoch, then 74 random bits."""
    random = getrandbits(74)
    text = f"{random >> 2:018x}"
    return f"{_prefix(time_ns() // 1_000_000)}{text[:3]}-{_VARIANT[random & 3]}{text[3:6]}-{text[6:]}"


@lru_cache(maxsize=1)
def _prefix(milliseconds: int) -> str:
    text = f"{milliseconds:012x}"
    return f"{text[:8]}-{text[8:12]}-7"

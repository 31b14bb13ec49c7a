"""Request ids: UUID version 7 (RFC 9562), so that they sort by time."""

from __future__ import annotations

from random import getrandbits
from time import time_ns


def request_id() -> str:
    """A new UUIDv7 as text: 48 bits of milliseconds, then 74 random bits."""
    random = getrandbits(74)
    value = ((time_ns() // 1_000_000 & 0xFFFFFFFFFFFF) << 80) | 0x7 << 76 | (random >> 62) << 64
    value |= 0x2 << 62 | random & 0x3FFFFFFFFFFFFFFF
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

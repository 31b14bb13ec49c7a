"""Cross-origin requests, for the origins that the operator names (``SIE_CORS_ORIGINS``, ``*`` for all)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_TOKENS: Final = re.compile(rb"^[A-Za-z0-9!#$%&'*+.^_`|~-]+(\s*,\s*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*$")
_SENT: Final = b"authorization, content-type, accept"


class Cors:
    """Adds the headers of the CORS protocol. Credentials in the sense of cookies are never allowed."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self.enabled = bool(origins)
        self._all = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def foreign(self, raw: Mapping[bytes, bytes]) -> bool:
        """Whether a page of another site asks, which may not read answers: browsers hinder no WebSocket."""
        origin = raw.get(b"origin")
        if origin is None or self._all or origin in self._origins:
            return False
        _, _, site = origin.lower().partition(b"://")
        return not site or site not in {raw.get(name, b"").lower() for name in (b"host", b"x-forwarded-host")}

    def headers(self, raw: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """Headers of an answer to a request with ``Origin``; none for an origin that is not allowed."""
        origin = raw.get(b"origin")
        if origin is None or not (self._all or origin in self._origins):
            return [] if self._all else [(b"vary", b"Origin")]
        allowed = [(b"access-control-allow-origin", b"*" if self._all else origin)]
        allowed.append((b"access-control-expose-headers", b"*"))
        return allowed if self._all else [*allowed, (b"vary", b"Origin")]

    def preflight(self, raw: dict[bytes, bytes], allow: bytes) -> list[tuple[bytes, bytes]]:
        """Further headers of the answer to ``OPTIONS``. SDKs send headers of their own: those asked for are allowed."""
        if not any(name == b"access-control-allow-origin" for name, _ in self.headers(raw)):
            return []
        asked = raw.get(b"access-control-request-headers", b"").strip()
        return [
            (b"access-control-allow-methods", allow),
            (b"access-control-allow-headers", asked if _TOKENS.match(asked) else _SENT),
            (b"access-control-max-age", b"600"),
        ]

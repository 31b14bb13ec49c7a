"""The token of a WebSocket that a browser opens: scripts can set no header there, but offer subprotocols.

A client offers ``sie.status`` and ``sie.bearer.<token in unpadded base64url>``; the server accepts the first and never
repeats the second. A URL would end up in logs and histories.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final

NAME: Final = "sie.status"
_BEARER: Final = "sie.bearer."


def offered(raw: Mapping[bytes, bytes]) -> list[str]:
    """The subprotocols that the client offers, in order."""
    return [part.strip() for part in raw.get(b"sec-websocket-protocol", b"").decode("latin-1").split(",")]


def authorization(raw: Mapping[bytes, bytes]) -> bytes | None:
    """Value of the ``Authorization`` header, or the same from an offered subprotocol."""
    given = raw.get(b"authorization")
    if given is not None:
        return given
    for name in offered(raw):
        if name.startswith(_BEARER):
            encoded = name[len(_BEARER) :]
            try:
                return b"Bearer " + base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
            except (binascii.Error, ValueError):
                return None
    return None

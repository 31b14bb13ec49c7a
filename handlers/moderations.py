"""Moderation is not offered: an honest 501, never a silent "not flagged"."""

from __future__ import annotations

from typing import NoReturn

from generated.sie.interfaces import Context

from .errors import Failure
from .surface import Surface


class ModerationsSurface(Surface):
    """``/v1/moderations``."""

    async def proxy_moderations(self, context: Context) -> NoReturn:
        """Always refuse."""
        raise Failure(501, "not_implemented", "Moderation is not implemented by this server")

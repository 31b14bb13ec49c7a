"""Commands for people at a terminal, added to the ``litestar`` tool."""

from __future__ import annotations

from .models import ModelsCLI

__all__ = ["ModelsCLI"]

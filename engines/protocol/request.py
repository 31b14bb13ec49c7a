"""The request that the current task serves, so that a log line can tell which it was, at the gateway and a worker."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

REQUEST: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""Its id, empty outside of requests."""

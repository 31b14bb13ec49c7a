"""Faults after a stream has begun."""

from __future__ import annotations

from generated.sie import models

from ..errors import Failure


def stream_error(failure: Failure) -> models.StreamError:
    """The ``error`` member of a chunk."""
    return models.StreamError(message=failure.message, type=failure.type, param=failure.param, code=failure.code)


def unfinished() -> Failure:
    """The worker said that its work was complete, and a choice has no end."""
    return Failure(500, "malformed_worker_response", "The worker's answer ended before all choices were finished")

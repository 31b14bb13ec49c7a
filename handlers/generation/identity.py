"""What an answer says of itself: id, time, model, fingerprint."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from time import time

from ..resolution import Target


@dataclass(frozen=True, slots=True)
class Identity:
    """Constant over all chunks of a stream. ``created`` is in seconds since the epoch."""

    id: str
    created: int
    model: str
    fingerprint: str


def identity(prefix: str, request_id: str, target: Target) -> Identity:
    """The identity of an answer made now; ``model`` is the canonical name."""
    model = target.model
    return Identity(
        f"{prefix}-{request_id}", int(time()), model.name, fingerprint(model.name, target.profile.name, model.revision)
    )


@lru_cache(maxsize=1024)
def fingerprint(model: str, profile: str, revision: str | None) -> str:
    """``fp_`` and 16 hex digits; changes with the model, its profile and its revision, and with nothing else."""
    text = "\0".join((model, profile, revision or ""))
    return f"fp_{blake2b(text.encode(), digest_size=8).hexdigest()}"

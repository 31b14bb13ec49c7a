"""The audit log: who changed what, or tried to. A token is told by the beginning of its digest, never by itself."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from .auth import bearer
from .context import RequestContext
from .tokens import digest

log = logging.getLogger("sie.audit")
# an operator who silences the rest keeps this
log.setLevel(logging.INFO)

SHOWN: Final = 12


class Mutation(msgspec.Struct, omit_defaults=True):
    """One line. ``target`` is what the path or the body names."""

    audit: str
    who: str
    status: int
    request_id: str
    target: str = ""
    code: str = ""


def who(authorization: bytes | None) -> str:
    """The caller of a request: ``sha256:`` and the first digits of the token's digest, or ``anonymous``."""
    token = bearer(authorization)
    return "anonymous" if token is None else f"sha256:{digest(token).hex()[:SHOWN]}"


def subject(arguments: tuple[Any, ...]) -> str:
    """What a request is about: the name in its path, or that in its body."""
    for part in arguments:
        name = part if isinstance(part, str) else getattr(part, "name", None) or getattr(part, "model", None)
        if isinstance(name, str):
            return name[:256]
    return ""


def record(context: RequestContext, status: int, code: str = "") -> None:
    """Write a line for a request to an admin operation, whatever came of it."""
    line = Mutation(
        audit=context.operation.id,
        who=who(context.raw.get(b"authorization")),
        status=status,
        request_id=context.request_id,
        target=context.subject,
        code=code,
    )
    log.info("%s", msgspec.json.encode(line).decode())

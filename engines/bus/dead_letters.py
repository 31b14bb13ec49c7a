"""Dead letters: what is kept of work that was given up for good, for the operator who wants to know why."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

import msgspec
from nats.js import JetStreamContext

from engines.protocol.work import Work

from . import subjects
from .settings import BusSettings
from .streams import ensure_dead_letters

Reason = Literal["max_deliveries", "engine_error", "decode_error"]

SECRET = ("auth", "token", "cookie", "secret", "key", "password")
"""A header whose name has one of these is not kept."""


class DeadLetter(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One JSON message of the stream. It holds nothing of what the caller sent but names.

    ``attempts`` counts deliveries, ``size`` is that of the work in bytes, ``at`` in seconds since the epoch;
    ``error_class`` is the type of the engine's exception. What could not be read is left out.
    """

    request_id: str
    reason: Reason
    attempts: int
    at: float
    error_class: str = ""
    operation: str = ""
    model: str = ""
    profile: str = ""
    bundle: str = ""
    pool: str = ""
    worker: str = ""
    size: int = 0
    headers: dict[str, str] = {}


def letter(
    reason: Reason,
    attempts: int,
    headers: Mapping[str, str],
    work: Work | None,
    *,
    size: int = 0,
    error_class: str = "",
    worker: str = "",
) -> DeadLetter:
    """Describe a message of a work queue; ``work`` is what was in it, as far as that is known."""
    made = DeadLetter(
        request_id=subjects.of_message_id(headers.get(subjects.ID_HEADER, ""))[0],
        reason=reason,
        attempts=attempts,
        at=time.time(),
        error_class=error_class,
        worker=worker,
        size=size,
        headers={name: value for name, value in headers.items() if not any(word in name.lower() for word in SECRET)},
    )
    if work is not None:
        made.request_id = work.request_id
        made.operation = type(work).__name__.removesuffix("Work").lower()
        made.model, made.profile, made.bundle, made.pool = work.model, work.profile, work.bundle, work.pool
    return made


class DeadLetters:
    """Writes to the stream, which it creates first: gateways listen there too, so nothing says that it is missing."""

    def __init__(self, js: JetStreamContext, settings: BusSettings) -> None:
        self._js = js
        self._settings = settings
        self._ready = False

    async def put(self, dead: DeadLetter, model: str) -> None:
        """Keep a letter under ``model`` (a name, or the token of a subject); of one request once."""
        if not self._ready:
            await ensure_dead_letters(self._js, self._settings)
            self._ready = True
        subject = subjects.dead_letter(dead.model or model)
        headers = {subjects.ID_HEADER: dead.request_id} if dead.request_id else None
        try:
            await self._js.publish(subject, msgspec.json.encode(dead), headers=headers)
        except BaseException:
            self._ready = False  # it may have gone with its server
            raise

"""Asking workers for events that were lost on the way: the bus keeps no answers, and connections break."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from nats.aio.client import Client

from engines.bus import subjects, wire
from engines.protocol.events import Missed

from .flight import Flight

log = logging.getLogger("sie.dispatcher")

LOOK_EVERY = 0.25
MAX_ASKED = 500
"""Answers that one message asks for."""


async def run(client: Client, flights: Mapping[str, Flight], wanted: asyncio.Event) -> None:
    """Look for ever, and at once when ``wanted`` is set."""
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):
                await wanted.wait()
        wanted.clear()
        if not client.is_connected:
            continue
        try:
            for subject, asked in _asked(flights).items():
                for start in range(0, len(asked), MAX_ASKED):
                    await client.publish(subject, wire.encode(asked[start : start + MAX_ASKED]))
        except Exception as error:  # not connected after all: the next turn asks again
            log.warning("bus: cannot ask for missed events: %s", error)


def _asked(flights: Mapping[str, Flight]) -> dict[str, list[Missed]]:
    """What to ask now, by subject: the worker that answers, or all while it is not known."""
    asked: dict[str, list[Missed]] = {}
    for flight in list(flights.values()):
        answer = flight.answer
        if (missed := answer.missed()) is not None:
            subject = subjects.AGAIN if answer.worker is None else subjects.again(answer.worker)
            asked.setdefault(subject, []).append(missed)
    return asked

"""Answers too large for a message: they go through the bucket one after another, while small ones pass them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from nats.aio.client import Client

from engines.bus import subjects, wire
from engines.bus.payloads import Payloads
from engines.bus.tasks import ended
from engines.protocol.events import WireEvent

log = logging.getLogger("sie.worker")

PAUSE = 0.5
"""Seconds between two tries when the bus does not take one."""


class Transfer(NamedTuple):
    """The last event of an attempt as ``data``, for the gateway behind ``subject``; ``event``: not sent before."""

    subject: str
    request_id: str
    attempt: str
    data: bytes
    event: WireEvent | None = None


class Transfers:
    """Tries each until the bus has taken it, and calls ``taken`` then. ``size``: bytes that wait."""

    def __init__(self, client: Client, payloads: Payloads, taken: Callable[[Transfer], None]) -> None:
        self._client = client
        self._payloads = payloads
        self._taken = taken
        self._waiting: dict[str, Transfer] = {}
        self._over: dict[str, asyncio.Event] = {}
        self._turns: asyncio.Queue[str] = asyncio.Queue()
        self.size = 0
        self._task = asyncio.create_task(self._run(), name="transfers")

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, transfer: Transfer) -> None:
        """Send it, unless it is being sent."""
        if transfer.attempt not in self._waiting:
            self._waiting[transfer.attempt] = transfer
            self._over[transfer.attempt] = asyncio.Event()
            self.size += len(transfer.data)
            self._turns.put_nowait(transfer.attempt)

    async def over(self, attempt: str) -> None:
        """Wait until nothing of an attempt waits any more."""
        if (over := self._over.get(attempt)) is not None:
            await over.wait()

    async def flush(self) -> None:
        """Wait for everything so far."""
        for over in list(self._over.values()):
            await over.wait()

    def give_up(self, attempt: str | None = None) -> Transfer | None:
        """Do not send the answer of an attempt, by default of the one that waits longest; return it, if it waited."""
        transfer = self._waiting.pop(next(iter(self._waiting), "") if attempt is None else attempt, None)
        if transfer is not None:
            self.size -= len(transfer.data)
            self._over.pop(transfer.attempt).set()
        return transfer

    async def close(self) -> None:
        await ended(self._task)

    async def _run(self) -> None:
        while True:
            attempt = await self._turns.get()
            transfer = self._waiting.get(attempt)
            if transfer is None:
                continue
            try:
                await self._send(transfer)
            except Exception as error:  # the others have their turn first
                log.warning("bus: it does not take a large answer yet: %s: %s", type(error).__name__, error)
                self._turns.put_nowait(attempt)
                await asyncio.sleep(PAUSE)

    async def _send(self, transfer: Transfer) -> None:
        headers = await self._payloads.store(wire.pack([transfer.data]))
        if transfer.attempt not in self._waiting:
            await self._payloads.drop(headers)
            return
        await self._client.publish(transfer.subject, headers=headers | {subjects.REQUEST_HEADER: transfer.request_id})
        if self.give_up(transfer.attempt) is not None:
            self._taken(transfer)

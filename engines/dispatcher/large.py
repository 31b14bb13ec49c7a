"""Answers too large for a message: fetched from the bucket in turn, so that together they fit the memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from engines.bus.payloads import NOT_FETCHED, Payloads, size_of

from .answer import PendingAnswer

log = logging.getLogger("sie.dispatcher")

MOST_BYTES = 256 << 20
"""Bytes of answers that are fetched at a time; a larger one, or one of unknown size, is fetched alone."""


class LargeAnswers:
    """Fetches the ends of answers for ``feed``, and deletes them; what nobody waits for it only deletes."""

    def __init__(
        self,
        payloads: Payloads,
        feed: Callable[[bytes], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._payloads = payloads
        self._feed = feed
        self._spawn = spawn
        self._turns = Turns(MOST_BYTES)

    def take(self, headers: dict[str, str], answer: PendingAnswer | None) -> None:
        """Fetch for ``answer`` what the headers lead to."""
        if answer is None:
            self._spawn(self._payloads.drop(headers))
        else:
            answer.fetch_begins()  # here, before the next message is looked at
            self._spawn(self._take(headers, answer))

    async def _take(self, headers: dict[str, str], answer: PendingAnswer) -> None:
        # only the last event of a request is ever that large, so nothing of that request can overtake it
        try:
            async with self._turns.of(size_of(headers) or MOST_BYTES):
                await self._fetch(headers, answer)
        except NOT_FETCHED as error:
            # its worker is asked for it, and stores it anew
            log.warning("a large answer did not come: %s: %s", type(error).__name__, error)
        await self._payloads.drop(headers)

    async def _fetch(self, headers: dict[str, str], answer: PendingAnswer) -> None:
        data = b""
        try:
            if not answer.done:
                data = await self._payloads.fetch(headers, b"")
        finally:
            answer.fetch_ended()
        if data:
            self._feed(data)


class Turns:
    """Lets those through, in the order they come, whose sizes together are no more than ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._first = asyncio.Lock()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def of(self, size: int) -> AsyncIterator[None]:
        async with self._first:
            while self._taken and self._taken + size > self._most:
                self._freed.clear()
                await self._freed.wait()
            self._taken += size
        try:
            yield
        finally:
            self._taken -= size
            self._freed.set()

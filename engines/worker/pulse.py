"""The heart-beat: what a worker tells of itself, once a second and whenever something changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from nats.aio.client import Client

from engines.bus import subjects, wire
from engines.protocol.cluster import WorkerStatus

from . import machine

HEARTBEAT_EVERY = 1.0
LAG_EVERY = 0.1
LAG_DECAY = 0.8


class Pulse:
    """Sends ``status(used, total)``, memory in bytes. ``lag``: how late the event loop was lately, in seconds."""

    def __init__(self, client: Client, name: str, status: Callable[[int, int], WorkerStatus]) -> None:
        self._client = client
        self._name = name
        self._status = status
        self._soon = asyncio.Event()
        self.lag = 0.0
        # not the threads that everything else shares: where those are busy, a live worker would be taken for dead
        self._thread = ThreadPoolExecutor(1, "pulse")

    def beat(self) -> None:
        """Tell now."""
        self._soon.set()

    async def run(self) -> None:
        """Beat for ever."""
        subject = f"{subjects.HEALTH}.{subjects.token(self._name)}"
        loop = asyncio.get_running_loop()
        watch = asyncio.create_task(self._watch_lag(), name="lag")
        try:
            while True:
                with contextlib.suppress(Exception):  # not connected: the next one tells the same
                    used, total = await loop.run_in_executor(self._thread, machine.memory)
                    await self._client.publish(subject, wire.encode(self._status(used, total)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_EVERY):
                        await self._soon.wait()
                self._soon.clear()
        finally:
            watch.cancel()
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def say_goodbye(self) -> None:
        """Tell everyone that this worker has ended."""
        data = wire.encode((self._name, "has shut down"))
        await self._client.publish(f"{subjects.GOODBYE}.{subjects.token(self._name)}", data)
        await self._client.flush(timeout=1)

    async def _watch_lag(self) -> None:
        """How late the event loop runs a timer: the worst of the last second or so."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY
            await asyncio.sleep(LAG_EVERY)
            self.lag = max(self.lag * LAG_DECAY, loop.time() - due)

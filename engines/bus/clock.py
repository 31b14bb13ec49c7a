"""The bus's clock: what a message's time stamp is compared with, so that clocks of gateways and workers may differ."""

from __future__ import annotations

import contextlib
import json
import time
from datetime import datetime

import nats.errors
from nats.aio.client import Client

SAMPLES = 3
TIMEOUT = 2.0


class ServerClock:
    """Time of the NATS server, estimated from its answers. Until the first estimate, this machine's own time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._offset = 0.0

    def now(self) -> float:
        """Seconds since the epoch, as the server would say."""
        return time.time() + self._offset

    async def estimate(self, stream: str) -> None:
        """Ask the server that leads ``stream`` for its time. The quickest answer counts: it was least under way."""
        best: tuple[float, float] | None = None
        for _ in range(SAMPLES):
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError, ValueError, KeyError):
                sample = await self._ask(stream)
                best = sample if best is None else min(best, sample)
        if best is not None:
            self._offset = best[1]

    async def _ask(self, stream: str) -> tuple[float, float]:
        """Seconds that the answer took, and how far the server's clock is ahead of ours."""
        sent = time.monotonic()
        message = await self._client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=TIMEOUT)
        took = time.monotonic() - sent
        stamp = datetime.fromisoformat(json.loads(message.data)["ts"])
        return took, stamp.timestamp() + took / 2.0 - time.time()

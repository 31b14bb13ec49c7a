"""How late the event loop is: what every request of this process waits for without knowing."""

from __future__ import annotations

import asyncio
from typing import Final

from .registry import Metrics

EVERY: Final = 0.25


async def watch(metrics: Metrics) -> None:
    """Observe the lag of a timer, four times a second, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + EVERY
        await asyncio.sleep(EVERY)
        metrics.lag.observe(max(0.0, loop.time() - due))

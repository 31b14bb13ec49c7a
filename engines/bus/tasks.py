"""Ending background tasks for certain."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN = 1.0
"""Seconds left to a task to clean up before it is cancelled once more."""


async def ended(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks until they have ended; whatever they ended with is theirs.

    Once is not enough: nats-py waits with ``asyncio.wait_for``, which before Python 3.12 loses a cancellation that
    comes in the same turn as the answer, and the task would go on for ever.
    """
    running = {task for task in tasks if task is not None}
    while running:
        for task in running:
            task.cancel()
        done, running = await asyncio.wait(running, timeout=AGAIN)
        for task in done:
            if not task.cancelled():
                task.exception()  # looked at, so that asyncio does not report it as forgotten

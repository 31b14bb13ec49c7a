"""WebSockets that are open: one whose token is rotated out is closed, for it has no end of its own as a request has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from litestar import WebSocket

from ..errors import Failure

LOOK_EVERY: Final = 1.0
"""Seconds between two looks, as often as the files of the tokens are looked at."""
CLOSE_PATIENCE: Final = 2.0
POLICY: Final = 1008


class Sockets:
    """Runs the handlers of open WebSockets; one timer looks after all of them."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Future[None], Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def serve(
        self, handling: Awaitable[None], socket: WebSocket[Any, Any, Any], check: Callable[[], None]
    ) -> None:
        """Run a handler to its end, or until ``check`` raises a ``Failure``: then cancel it and close ``socket``.

        A client that was closed with 1008 learns the status when it comes back: the upgrade is refused.
        """
        task = asyncio.ensure_future(handling)
        self._open[task] = check
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)
        try:
            await asyncio.wait({task})
        finally:
            refused = self._open.pop(task, None) is None
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if not refused:
            await task
            return
        with contextlib.suppress(Exception):  # it may have left, or take nothing any more
            async with asyncio.timeout(CLOSE_PATIENCE):
                await socket.close(code=POLICY, reason="the token is no longer valid")

    def _look(self) -> None:
        self._timer = None
        for task, check in list(self._open.items()):
            try:
                check()
            except Failure:
                del self._open[task]
                task.cancel()
        if self._open:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)

"""The live state of the cluster over a WebSocket (contract L)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from typing import Any, Final

import msgspec
from litestar import WebSocket
from litestar.exceptions import WebSocketDisconnect

from generated.sie import models as wire
from generated.sie.interfaces import Context

from .health import snapshot
from .metrics.throughput import Rates
from .pools import pools_frame
from .services import Services
from .settings import Settings
from .surface import Surface

log = logging.getLogger("sie.watch")

EVERY: Final = 1.0
SLOW: Final = 5.0
"""Seconds that a watcher may take for one frame before it is dropped."""
TRY_AGAIN: Final = 1013
TOGETHER: Final = 8
"""Watchers that are sent a frame in one turn of the event loop: about a millisecond, compression and all."""
GAP: Final = 0.004
"""Seconds until the next ones: a request that comes meanwhile waits for some frames, not for those of all."""

Socket = WebSocket[Any, Any, Any]


class Frame(msgspec.Struct):
    """One frame: the state of ``/health`` at a time (seconds since the epoch), and what the page shows beside it."""

    timestamp: float
    cluster: wire.ClusterSummary
    workers: list[wire.WorkerInfo]
    models: list[wire.ModelInfo]
    pending_generation: wire.PendingGenerationSnapshot | msgspec.UnsetType
    pools: list[wire.Pool] | msgspec.UnsetType
    throughput: Rates


def frame(services: Services) -> str:
    """The state of this moment, encoded."""
    state = snapshot(services)
    made = Frame(
        timestamp=time.time(),
        cluster=state.cluster,
        workers=state.workers,
        models=state.models,
        pending_generation=state.pending_generation,
        pools=msgspec.UNSET if _open_to_all(services.settings) else pools_frame(services),
        throughput=services.metrics.throughput.rates(),
    )
    return msgspec.json.encode(made).decode()


def _open_to_all(settings: Settings) -> bool:
    """Whether watchers need no token where pools do: that exemption is for the state of the cluster alone."""
    return settings.auth_mode != "none" and settings.auth_exempt_operational


class Broadcast:
    """One frame a second for all watchers; made only while there are any.

    A watcher that still sends one frame when the next is made misses that: it gets the newest when it is ready.
    """

    def __init__(self, services: Services, every: float = EVERY) -> None:
        self._services = services
        self._every = every
        self._frame = ""
        self._made = float("-inf")
        self._waiting: list[asyncio.Future[None]] = []
        self._due: deque[asyncio.Future[None]] = deque()
        self._releasing: asyncio.TimerHandle | None = None
        self._watchers = 0
        self._timer: asyncio.TimerHandle | None = None

    def join(self) -> str:
        """One watcher more; the frame to begin with, never older than the cadence."""
        self._watchers += 1
        loop = asyncio.get_running_loop()
        if loop.time() - self._made >= self._every:
            self._make(loop.time())
        if self._timer is None:
            self._timer = loop.call_at(self._made + self._every, self._tick)
        return self._frame

    def leave(self) -> None:
        self._watchers -= 1
        if not self._watchers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def after(self, seen: str) -> str:
        """The newest frame that is not ``seen``."""
        while self._frame is seen:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        return self._frame

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        # by the clock, not by when the last one was done: no drift
        self._timer = loop.call_at(max(loop.time(), self._made + 2.0 * self._every), self._tick)
        self._make(self._made + self._every)

    def _make(self, at: float) -> None:
        self._made = at
        try:
            self._frame = frame(self._services)
        except Exception:
            log.exception("the state of the cluster cannot be told")
            return
        self._due.extend(self._waiting)
        self._waiting.clear()
        if self._releasing is None:
            self._release()

    def _release(self) -> None:
        """Wake the next few watchers, the others soon."""
        for _ in range(min(TOGETHER, len(self._due))):
            turn = self._due.popleft()
            if not turn.done():  # its watcher has not left
                turn.set_result(None)
        self._releasing = None
        if self._due:
            self._releasing = asyncio.get_running_loop().call_later(GAP, self._release)


class ObservabilitySurface(Surface):
    """``/ws/cluster-status``."""

    def __init__(self, services: Services, every: float = EVERY, slow: float = SLOW) -> None:
        super().__init__(services)
        self._broadcast = Broadcast(services, every)
        self._slow = slow

    async def ws_cluster_status(self, context: Context, socket: Socket) -> None:
        """A frame at once, then one a second, until the watcher leaves or is too slow."""
        gone = asyncio.create_task(_until_gone(socket))
        sending = asyncio.create_task(self._send(socket))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, socket: Socket) -> None:
        frame = self._broadcast.join()
        try:
            while True:
                async with asyncio.timeout(self._slow):
                    await socket.send_text(frame)
                frame = await self._broadcast.after(frame)
        except TimeoutError:
            log.info("a watcher of the cluster's state is too slow and is dropped")
            with contextlib.suppress(Exception):  # it may not even take that
                async with asyncio.timeout(self._slow):
                    await socket.close(code=TRY_AGAIN)
        except (WebSocketDisconnect, RuntimeError, OSError):
            return  # it left while a frame was on its way
        finally:
            self._broadcast.leave()


async def _until_gone(socket: Socket) -> None:
    """Messages of watchers are ignored."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass

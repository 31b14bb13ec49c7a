"""The lifespan of the application: what starts with the server, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from types import FrameType
from typing import Any

from engines.bus.tasks import ended
from engines.cluster import Cluster
from engines.protocol.tracing import Tracing
from engines.worker import log as logs

from .http.access import AccessLog, silence_server
from .http.server import Server
from .metrics.lag import watch as watch_lag
from .services import Services

log = logging.getLogger("sie.app")

RESTART_PAUSE = 5.0
LAST_WORDS = 1.0
"""Seconds in which requests tell their callers that their work was ended."""
FORCED_LIMIT = 5.0
"""Seconds after the second signal in which the process ends, whatever it is doing."""


class Lifetime:
    """From the first request to the last: the cluster beside the server, and a bounded end.

    At the first signal the server closes its port, so that it is no longer ready, and requests that it has or still
    takes get ``drain`` seconds; then the cluster stops, which ends their streams with an error of their own; what is
    left is cancelled. A second signal does not wait for any of it.
    """

    def __init__(
        self,
        serve: Server,
        access: AccessLog,
        cluster: Cluster | None,
        services: Services,
        traces: Tracing | None = None,
    ) -> None:
        self._traces = traces
        self._serve = serve
        self._access = access
        self._cluster = cluster
        self._drain = services.settings.drain_timeout
        self._metrics = services.metrics
        self._hurry = asyncio.Event()
        self._served = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def span(self) -> AsyncIterator[None]:
        """The lifespan of the application."""
        if self._cluster is not None:
            logs.configure()
            silence_server()
            self._tasks.append(asyncio.create_task(self._start(self._cluster), name="start-cluster"))
        self._tasks.append(asyncio.create_task(watch_lag(self._metrics), name="loop-lag"))
        restore = self._on_signals()
        try:
            yield
        finally:
            try:
                await self._end()
            finally:
                restore()
                self._access.flush()
            if self._traces is not None:
                await asyncio.to_thread(self._traces.close)

    async def _start(self, cluster: Cluster) -> None:
        """Start the cluster behind the server, which answers from its first moment."""
        while True:
            try:
                await cluster.start()
                return
            except Exception as error:
                log.error("the cluster did not start, trying again in %.0f s: %s", RESTART_PAUSE, error)
                await asyncio.sleep(RESTART_PAUSE)

    def _on_signals(self) -> Callable[[], None]:
        """Begin the end with the signal that stops the server, which waits for its requests before it tells us."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        count = 0

        def received(number: int, frame: FrameType | None) -> None:
            nonlocal count
            count += 1
            if count > 1:
                loop.call_soon_threadsafe(self._force)
                return
            loop.call_soon_threadsafe(self._begin_end)
            handler = before[signal.Signals(number)]
            if callable(handler):
                handler(number, frame)

        for number in before:
            signal.signal(number, received)

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        return restore

    def _force(self) -> None:
        """The second signal: fail what runs, wait for nothing, and end whatever happens."""
        if self._hurry.is_set():
            return
        self._hurry.set()
        if self._cluster is not None:
            self._cluster.hurry()
        last = threading.Timer(FORCED_LIMIT, os._exit, (1,))
        last.daemon = True
        last.start()

    def _begin_end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._finish(), name="drain")

    async def _end(self) -> None:
        self._served.set()
        self._begin_end()
        assert self._ending is not None
        await self._ending

    async def _finish(self) -> None:
        await self._patiently(self._quiet(), self._drain)
        for task in self._tasks:
            task.cancel()
        if self._cluster is not None:
            await self._cluster.stop()
        with contextlib.suppress(TimeoutError):
            # all work has been failed by now: what is left are answers that tell so
            async with asyncio.timeout(LAST_WORDS):
                await self._quiet()
        for task in self._serve.visits.tasks():
            task.cancel()

    async def _quiet(self) -> None:
        """Wait until the server has ended its requests and takes no more: some still come in after a signal."""
        await self._served.wait()
        while running := self._serve.visits.tasks():
            await asyncio.wait(running)

    async def _patiently(self, awaited: Coroutine[Any, Any, None], limit: float) -> None:
        """Wait at most ``limit`` seconds, and no longer than until someone is in a hurry."""
        tasks = {asyncio.create_task(awaited), asyncio.create_task(self._hurry.wait())}
        await asyncio.wait(tasks, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        await ended(*tasks)

"""The requests that run now: who watches whether their clients are still there, and what is written when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter, time
from typing import Any, Final, Protocol

from litestar.types import Receive

from engines.protocol.request import REQUEST

from ..limits import Lease
from .access import AccessLog, Line

LOOK_EVERY: Final = 0.05
"""Seconds between two looks at the requests that run. One shorter than that is never watched and costs nothing."""


class Observer(Protocol):
    """Who counts requests. ``route`` is a template of the document, empty where no operation was meant."""

    def began(self) -> None: ...

    def ended(self, method: str, route: str, status: int, seconds: float, request_id: str) -> None: ...


class Visit:
    """One request. Calling it, with its status and whether the client had left, ends it."""

    __slots__ = ("_receive", "_visits", "_watcher", "lease", "left", "method", "request_id", "route", "started", "task")

    def __init__(self, visits: Visits, method: str, route: str, request_id: str) -> None:
        self.method = method
        self.route = route
        self.request_id = request_id
        self.started = perf_counter()
        self.task = asyncio.current_task()
        self.left = False
        self.lease: Lease | None = None
        self._visits = visits
        self._receive: Receive | None = None
        self._watcher: asyncio.Task[None] | None = None

    def __call__(self, status: int, left: bool) -> None:
        self._visits.end(self, status, left)

    def watch(self, receive: Receive) -> None:
        """From now on cancel the task of this request when its client leaves; ``left`` tells that from a shutdown."""
        self._receive = receive

    def unwatch(self) -> None:
        """Stop watching: the task is not cancelled after this."""
        self._receive = None
        if self._watcher is not None:
            self._watcher.cancel()

    def look(self) -> None:
        """Begin to watch, if that is wanted and has not begun."""
        if self._receive is not None and self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._wait(self._receive))

    async def _wait(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if self._receive is not None and self.task is not None:
            self.left = True
            self.task.cancel()

    def acknowledge(self) -> None:
        """Take the cancellation back: the task goes on, to end its request."""
        if self.task is not None:
            self.task.uncancel()


class Visits:
    """All requests that run. ``begun`` is told the method, the route and the id of each when it comes in."""

    def __init__(self, access: AccessLog, observer: Observer | None = None) -> None:
        self._access = access
        self._observer = observer
        self._open: set[Visit] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.begun: Callable[[str, str, str], None] | None = None

    def begin(self, method: str, route: str, request_id: str) -> Visit:
        """A request has come in. What its task logs from now on carries its id."""
        REQUEST.set(request_id)
        visit = Visit(self, method, route, request_id)
        self._open.add(visit)
        if self._observer is not None:
            self._observer.began()
        if self.begun is not None:
            self.begun(method, route, request_id)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)
        return visit

    def end(self, visit: Visit, status: int, left: bool) -> None:
        """A request has been answered."""
        self._open.discard(visit)
        if visit.lease is not None:
            visit.lease.release()
        seconds = perf_counter() - visit.started
        if self._observer is not None:
            self._observer.ended(visit.method, visit.route, status, seconds, visit.request_id)
        if self._access.enabled:
            ms = round(seconds * 1000.0, 2)
            self._access(Line(time(), visit.method, visit.route, status, ms, visit.request_id, left))

    def tasks(self) -> set[asyncio.Task[Any]]:
        """The tasks of the requests that run."""
        return {visit.task for visit in self._open if visit.task is not None}

    def _look(self) -> None:
        self._timer = None
        if self._open:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)
            for visit in self._open:
                visit.look()

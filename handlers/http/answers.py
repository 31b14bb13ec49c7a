"""Answers as bare ASGI applications: Litestar hands them through untouched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from typing import Final

from litestar.types import Receive, Scope, Send

RawHeaders = list[tuple[bytes, bytes]]
Done = Callable[[int, bool], None]
EVENT_STREAM: Final = "text/event-stream"
KEEP_ALIVE: Final = b": keep-alive\n\n"


class Answer:
    """A whole body. ``done`` is called once with the status and whether the client had left."""

    __slots__ = ("body", "done", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: RawHeaders, done: Done | None = None) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers.append((b"content-length", b"%d" % len(self.body)))
        try:
            await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
            await send({"type": "http.response.body", "body": self.body, "more_body": False})
        finally:
            if self.done is not None:
                self.done(self.status, False)


class Gone:
    """No answer: the client has left. Logged as status 499."""

    __slots__ = ("done",)

    def __init__(self, done: Done) -> None:
        self.done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.done(499, True)


class EventStream:
    """Server-sent events, one whole frame a message.

    The source is closed when it ends and when the client leaves, at once even while it waits. While it is silent a
    comment is sent every ``keep_alive`` seconds. When it raises, the response is cut without its closing chunk, so that
    nobody takes it for complete; ``fault`` gets the exception.
    """

    __slots__ = ("done", "fault", "frames", "headers", "keep_alive", "open", "sent", "status")

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        headers: RawHeaders,
        *,
        status: int = 200,
        keep_alive: float = 15.0,
        done: Done | None = None,
        fault: Callable[[Exception], None] | None = None,
    ) -> None:
        self.frames = frames
        self.headers = headers
        self.status = status
        self.keep_alive = keep_alive
        self.done = done
        self.fault = fault
        self.sent = 0
        self.open = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        me = asyncio.current_task()
        assert me is not None
        self.open = True
        companion = asyncio.ensure_future(self._attend(me, receive, send))
        left = False
        try:
            await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
            async for frame in self.frames:
                self.sent += 1
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            self.open = False
            await _stop(companion)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if self.open:
                raise  # the server stops, the client has not left
            left = True
            me.uncancel()
        except Exception as error:
            if self.fault is not None:
                self.fault(error)
        finally:
            self.open = False
            companion.cancel()
            await close(self.frames)
            if self.done is not None:
                self.done(self.status, left)

    async def _attend(self, stream: asyncio.Task[object], receive: Receive, send: Send) -> None:
        """Cancel ``stream`` when the client leaves; until then send a comment whenever it is silent for a while."""
        message = asyncio.ensure_future(receive())
        try:
            while True:
                before = self.sent
                await asyncio.wait({message}, timeout=self.keep_alive)
                if message.done():
                    if message.result()["type"] == "http.disconnect":
                        break
                    message = asyncio.ensure_future(receive())
                elif self.sent == before and self.open:
                    await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
            if self.open:
                self.open = False
                stream.cancel()
        finally:
            message.cancel()


async def _stop(task: asyncio.Future[None]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait({task})


async def close(frames: AsyncIterator[bytes]) -> None:
    """Close an iterator that can be closed."""
    aclose = getattr(frames, "aclose", None)
    if aclose is not None:
        await aclose()


@lru_cache(maxsize=1024)
def negotiate(accept: bytes, offered: tuple[str, ...]) -> str:
    """The media type of ``offered`` that an ``Accept`` header prefers.

    Weights decide, then the order of the header; the first of ``offered`` answers wildcards and headers that name none.
    """
    best, weight = offered[0], 0.0
    for part in accept.decode("latin-1").lower().split(","):
        name, *params = (piece.strip() for piece in part.split(";"))
        q = 1.0
        for param in params:
            if param.startswith("q="):
                try:
                    q = float(param[2:])
                except ValueError:
                    q = 0.0
        found = name if name in offered else offered[0] if name in {"*/*", "application/*"} else None
        if found is not None and q > weight:
            best, weight = found, q
    return best


__all__ = ["EVENT_STREAM", "Answer", "EventStream", "Gone", "close", "negotiate"]

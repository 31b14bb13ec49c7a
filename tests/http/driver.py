"""Drives one request through ``Server`` by the ASGI protocol alone, up to the moment at which the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from litestar import Request

from generated.sie.operations import Operation
from handlers.http.server import Server


class Exchange:
    """One request. Messages of ``body`` are delivered in turn; then ``receive`` waits until ``leave`` is called."""

    def __init__(
        self,
        body: bytes | Iterable[bytes] = b"",
        headers: dict[str, str] | None = None,
        method: str = "POST",
        path: str = "/things",
    ) -> None:
        parts = [body] if isinstance(body, bytes) else list(body)
        self._parts = [
            {"type": "http.request", "body": part, "more_body": i + 1 < len(parts)} for i, part in enumerate(parts)
        ]
        sent = {"content-type": "application/json", **(headers or {})}
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [(k.lower().encode(), v.encode()) for k, v in sent.items() if v],
            "query_string": b"",
        }
        self.received = 0
        self.frames: list[bytes] = []
        self.status = 0
        self.headers: dict[str, str] = {}
        self.finished = False
        self._gone = asyncio.Event()
        self._sent = asyncio.Condition()

    def leave(self) -> None:
        """The client closes the connection."""
        self._gone.set()

    async def receive(self) -> Any:
        if self._parts:
            self.received += 1
            return self._parts.pop(0)
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        async with self._sent:
            if message["type"] == "http.response.start":
                assert self.status == 0, "the response was started twice"
                self.status = message["status"]
                self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                assert self.status and not self.finished, "a body outside of the response"
                self.frames.append(message.get("body", b""))
                self.finished = not message.get("more_body", False)
            self._sent.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what was sent satisfies ``condition``."""
        async with self._sent:
            await self._sent.wait_for(condition)

    async def run(self, server: Server, operation: Operation, handler: Any, *path: str) -> Exchange:
        request: Request[Any, Any, Any] = Request(self.scope, receive=self.receive)  # type: ignore[arg-type]
        answer = await server(operation, request, handler, *path)
        await answer(self.scope, self.receive, self.send)  # type: ignore[arg-type]
        return self

    @property
    def body(self) -> bytes:
        return b"".join(self.frames)

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

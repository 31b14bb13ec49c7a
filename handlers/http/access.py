"""The access log: one JSON line a request, written in batches. It holds no token, no query, no body."""

from __future__ import annotations

import asyncio
import logging
import select
import sys
from collections.abc import Callable, Iterator

import msgspec


class Line(msgspec.Struct, omit_defaults=True):
    """One request. ``time`` in seconds since the epoch, ``ms`` until the last byte; ``left``: the client had gone."""

    time: float
    method: str
    route: str
    status: int
    ms: float
    request_id: str
    left: bool = False


def to_stdout(lines: bytes) -> None:
    """Write to standard output, which other writers have too; a closed one is nobody's error."""
    try:
        for whole in _pieces(lines):
            sys.stdout.buffer.write(whole)
            sys.stdout.buffer.flush()
    except (OSError, ValueError):
        pass


def _pieces(lines: bytes) -> Iterator[bytes]:
    """Runs of whole lines that the kernel writes in one go, so that no other writer's line gets into them."""
    start = 0
    while start < len(lines):
        end = len(lines)
        if end - start > select.PIPE_BUF:
            end = (lines.rfind(b"\n", start, start + select.PIPE_BUF) + 1) or (lines.find(b"\n", start) + 1) or end
        yield lines[start:end]
        start = end


class AccessLog:
    """Gathers lines and writes them together at most ``delay`` seconds later: a system call a batch, not a request."""

    def __init__(self, write: Callable[[bytes], None] | None = to_stdout, delay: float = 0.1) -> None:
        self._write = write
        self._delay = delay
        self._lines: list[Line] = []
        self._encode = msgspec.json.Encoder().encode_lines
        self._handle: asyncio.TimerHandle | None = None

    @property
    def enabled(self) -> bool:
        """Whether lines go anywhere."""
        return self._write is not None

    def __call__(self, line: Line) -> None:
        """Take one line."""
        self._lines.append(line)
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(self._delay, self.flush)

    def flush(self) -> None:
        """Write what was gathered."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._lines and self._write is not None:
            lines, self._lines = self._lines, []
            self._write(self._encode(lines))


def silence_server() -> None:
    """Turn off what uvicorn says of requests: it costs a good part of one and says less than our own log.

    Its lines on WebSockets hold the query, and at the level DEBUG all headers, tokens among them.
    """
    logging.getLogger("uvicorn.access").handlers.clear()
    logging.getLogger("uvicorn.access").propagate = False
    rest = logging.getLogger("uvicorn.error")
    rest.setLevel(max(rest.getEffectiveLevel(), logging.INFO))
    rest.addFilter(_no_handshake)


def _no_handshake(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith('%s - "WebSocket')

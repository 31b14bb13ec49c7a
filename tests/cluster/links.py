"""The network of the cluster tests: TCP links that can be cut, healed and reset, in a process of their own.

A cut link carries nothing and refuses nothing, as when packets are dropped: what is sent into it arrives after the
healing. A reset closes its connections. A link with several targets gives each connection to the next one that
answers.

Run as a program, it reads commands as JSON lines (``[verb, name, ports]``) and answers each with a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class _End(asyncio.Protocol):
    """One end of a connection; what it reads goes out at ``other``."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.other: _End | None = None
        self.transport: Any = None
        self.full = False
        self.early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.link.ends.add(self)
        # uvloop begins to read after this call
        asyncio.get_running_loop().call_soon(self.flow)

    def flow(self) -> None:
        """Read, unless the link is cut or the other end is missing or full."""
        with contextlib.suppress(RuntimeError):  # it reads already, or does not
            if self.link.cut or self.other is None or self.other.full:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.full = True
        if self.other is not None:
            self.other.flow()

    def resume_writing(self) -> None:
        self.full = False
        if self.other is not None:
            self.other.flow()

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early += data
        elif not self.other.transport.is_closing():
            self.other.transport.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self.link.ends.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Link:
    """Listens on a port of its own and leads to the first of ``ports`` that answers, beginning with the next one."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self.cut = False
        self.ends: set[_End] = set()
        self._turn = 0
        self._healed = asyncio.Event()
        self._healed.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> int:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", 0, backlog=512)
        return int(self._server.sockets[0].getsockname()[1])

    def set(self, cut: bool) -> None:
        self.cut = cut
        if cut:
            self._healed.clear()
        else:
            self._healed.set()
        for end in list(self.ends):
            end.flow()

    def reset(self) -> None:
        for end in list(self.ends):
            end.transport.abort()

    def _accept(self) -> _End:
        near = _End(self)
        task = asyncio.get_running_loop().create_task(self._join(near))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return near

    async def _join(self, near: _End) -> None:
        await self._healed.wait()
        self._turn += 1
        for step in range(len(self.ports)):
            port = self.ports[(self._turn + step) % len(self.ports)]
            far = _End(self)
            far.other = near
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().create_connection(lambda far=far: far, "127.0.0.1", port)
                near.other = far
                if near.early:
                    far.transport.write(near.early)
                if near.transport.is_closing():
                    far.transport.close()
                near.flow()
                return
        near.transport.abort()


async def _serve() -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    links: dict[str, Link] = {}
    while line := await reader.readline():
        verb, name, ports = json.loads(line)
        answer: object = None
        match verb:
            case "open":
                links[name] = Link(ports)
                answer = await links[name].listen()
            case "cut" | "heal":
                links[name].set(verb == "cut")
            case "reset":
                links[name].reset()
        print(json.dumps(answer), flush=True)


class Network:
    """The links, as a test holds them. Links are named; several are cut or healed together."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.links"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def open(self, name: str, *ports: int) -> int:
        """A link to ``ports``; returns the port on which it listens."""
        return int(self._say("open", name, ports))

    def cut(self, names: Iterable[str]) -> None:
        for name in names:
            self._say("cut", name)

    def heal(self, names: Iterable[str]) -> None:
        for name in names:
            self._say("heal", name)

    def reset(self, names: Iterable[str]) -> None:
        for name in names:
            self._say("reset", name)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def _say(self, verb: str, name: str, ports: Sequence[int] = ()) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([verb, name, ports]), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve())

"""The reading of documents as the engines see it: a few processes, started when needed and gone when idle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from ...protocol.catalog import Profile
from ...protocol.events import ItemError
from ...protocol.work import Item
from . import child

ROOT: Final = Path(__file__).resolve().parents[3]
COMMAND: Final = (sys.executable, "-m", f"{__package__}.child")
SECONDS: Final = 30.0
LAST_BREATH_S: Final = 5.0
"""Seconds for a process that has closed its pipes to end by itself."""
IDLE_S: Final = 60.0

RETIRED_AT: Final = 256 * 1024 * 1024
"""A process that holds so many bytes is not kept: it would go on holding them."""

OPTIONS: Final = ("document_timeout_s", "max_file_size_bytes", "max_num_pages")
"""Load-time options of a profile that this module obeys; times are per document and default to ``SECONDS``."""


class Reader:
    """Reads documents for one engine, as many at once as the machine has cores."""

    def __init__(self, profile: Profile) -> None:
        options = profile.loadtime
        self._seconds = float(options.get("document_timeout_s") or SECONDS)
        self._bytes: int | None = options.get("max_file_size_bytes")
        self._pages: int | None = options.get("max_num_pages")
        self._turns = asyncio.Semaphore(len(os.sched_getaffinity(0)))
        self._idle: list[Process] = []

    async def text_of(self, item: Item) -> str | ItemError:
        """The text that an item stands for: its own or that of its document. Cancelling it stops the reading."""
        if item.document is None:
            if item.text is None:
                return ItemError("INVALID_INPUT", "the item has no text")
            return item.text
        if item.text is not None:
            return ItemError("INVALID_INPUT", "the item has a text and a document; give one of them")
        if self._bytes is not None and len(item.document) > self._bytes:
            message = f"the document has {len(item.document)} bytes; at most {self._bytes} are read"
            return ItemError("INVALID_INPUT", message)
        async with self._turns:
            reply = await self._read(child.Request(item.document, item.document_format, self._seconds, self._pages))
        return ItemError("INVALID_INPUT", reply.error) if reply.text is None else reply.text

    async def close(self) -> None:
        """End the processes that are idle. Those at work end with the work that they are cancelled with."""
        while self._idle:
            await self._idle.pop().end()

    async def _read(self, request: child.Request) -> child.Reply:
        process = await self._process()
        try:
            reply = await process.ask(request)
        except Ended as error:
            late = error.status == -signal.SIGALRM
            why = f"takes longer than {request.seconds:g} s" if late else "ended the process that read it"
            return child.Reply(error=f"reading the document {why}")
        except BaseException:
            process.kill()
            raise
        if reply.memory > RETIRED_AT:
            process.kill()
        else:
            process.rest(self._retire)
            self._idle.append(process)
        return reply

    async def _process(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            process.wake()
            if process.alive:
                return process
        return await Process.start()

    def _retire(self, process: Process) -> None:
        self._idle.remove(process)
        process.kill()


class Ended(Exception):
    """The process ended before it answered, with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Process:
    """One child."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._requests = process.stdin
        self._replies = process.stdout
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @classmethod
    async def start(cls) -> Process:
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*COMMAND, stdin=pipe, stdout=pipe, cwd=ROOT))

    async def ask(self, request: child.Request) -> child.Reply:
        """Send a document and wait for its text.

        Raises:
            Ended: the process has ended, by the document or by itself.
        """
        data = msgspec.msgpack.encode(request)
        try:
            self._requests.write(len(data).to_bytes(child.LENGTH, "big") + data)
            await self._requests.drain()
            size = int.from_bytes(await self._replies.readexactly(child.LENGTH), "big")
            return msgspec.msgpack.decode(await self._replies.readexactly(size), type=child.Reply)
        except (OSError, asyncio.IncompleteReadError):
            # it is ending by itself, and its status says why: a kill meanwhile could take the place of that
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_BREATH_S):
                    await self._process.wait()
            await self.end()
            assert self._process.returncode is not None
            raise Ended(self._process.returncode) from None

    def rest(self, retire: Callable[[Process], None]) -> None:
        """Nothing to do: ``retire`` it when that stays so for long."""
        self._expiry = asyncio.get_running_loop().call_later(IDLE_S, retire, self)

    def wake(self) -> None:
        """It is needed after all."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = None

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self.wake()
        self._requests.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """As ``kill``, and wait until it is gone."""
        self.kill()
        with contextlib.suppress(OSError):
            await self._requests.wait_closed()
        await self._process.wait()

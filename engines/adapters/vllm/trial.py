"""A trial of each new grammar in a process of its own, so that one which takes too much ends that process only."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

MAX_SECONDS = 10.0
_CHILD = Path(__file__).with_name("grammar_child.py")
_LINE = 16 * 1024 * 1024


class TooCostly(ValueError):
    """The grammar takes more time or memory than it may have."""


class Trial:
    """Keeps one process for the grammars of one tokenizer (of Hugging Face's fast kind); it is started when needed."""

    def __init__(self, tokenizer: Any, size: int) -> None:
        told = {
            "tokenizer": tokenizer.backend_tokenizer.to_str(),
            "size": max(size, len(tokenizer)),
            "end": tokenizer.eos_token_id,
        }
        self._told = json.dumps(told).encode() + b"\n"
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def run(self, grammar: str) -> None:
        """Compile a grammar of llguidance.

        Raises:
            TooCostly: it takes more than it may have.
            ValueError: it is wrong. The message says why.
        """
        async with self._lock:
            try:
                async with asyncio.timeout(MAX_SECONDS):
                    error = await self._ask(grammar)
            except BaseException as fault:
                await self._end()
                if isinstance(fault, TimeoutError):
                    raise TooCostly(f"the grammar does not compile within {MAX_SECONDS:.0f} seconds") from None
                raise
        if error:
            raise ValueError(f"Grammar error: {error}")

    async def _ask(self, grammar: str) -> str:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(grammar).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        if not line:
            await self._end()
            raise TooCostly("the grammar needs more memory than it may have")
        return str(json.loads(line))

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(_CHILD),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(os.environ),
            limit=_LINE,
        )
        assert process.stdin is not None
        process.stdin.write(self._told)
        return process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def close(self) -> None:
        """End the process."""
        async with self._lock:
            await self._end()

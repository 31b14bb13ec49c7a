"""The gateway's side of a worker on the same machine: starts it, starts it again, and ends it without leftovers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

log = logging.getLogger("sie.supervisor")

ROOT = Path(__file__).resolve().parents[2]
FIRST_PAUSE = 0.2
LAST_PAUSE = 30.0
STEADY_AFTER = 60.0
PARENT = "SIE_WORKER_PARENT"


class Supervisor:
    """Keeps one worker process alive.

    Each start has a name of its own, so that nobody mistakes a new process for the one that died. ``gone`` is called
    with that name and a reason as soon as the process has ended.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        gone: Callable[[str, str], None],
        *,
        command: Sequence[str] = (sys.executable, "-m", "engines.worker"),
    ) -> None:
        self._command = [*command, *arguments]
        path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
        self._environment = {**os.environ, **environment, "PYTHONPATH": path, PARENT: str(os.getpid())}
        self._gone = gone
        self._prefix = f"local-{secrets.token_hex(3)}"
        self._starts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def starts(self) -> int:
        """How often the process has been started."""
        return self._starts

    async def start(self) -> None:
        """Start the process and watch it."""
        await self._spawn()
        self._task = asyncio.create_task(self._watch(), name="worker-supervisor")

    async def stop(self, patience: float) -> None:
        """SIGTERM, wait up to ``patience`` seconds, SIGTERM again, then kill the process and all it started."""
        self._stopping = True
        process = self._process
        if process is not None:
            for wait in (patience, 2.0):
                if await _ended(process, wait, signal.SIGTERM):
                    break
            _kill_group(process.pid)
            await process.wait()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _spawn(self) -> None:
        self._starts += 1
        self._name = f"{self._prefix}-{self._starts}"
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            "--name",
            self._name,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            # its own group: Ctrl-C is for the gateway, and one signal reaches all that an engine started
            start_new_session=True,
        )
        log.info("worker %s: started as process %d", self._name, self._process.pid)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while True:
            assert self._process is not None
            started = loop.time()
            status = await self._process.wait()
            _kill_group(self._process.pid)
            reason = f"ended with {_describe(status)}"
            if self._stopping:
                return
            log.error("worker %s: %s, starting another in %.1f s", self._name, reason, pause)
            self._gone(self._name, reason)
            await asyncio.sleep(pause)
            pause = FIRST_PAUSE if loop.time() - started > STEADY_AFTER else min(LAST_PAUSE, pause * 2.0)
            await self._spawn()


async def _ended(process: asyncio.subprocess.Process, wait: float, number: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
    try:
        async with asyncio.timeout(wait):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _describe(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"

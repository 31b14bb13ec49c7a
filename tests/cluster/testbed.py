"""A whole cluster on one machine, as processes: NATS nodes, gateways and workers, joined by links that can be cut.

Every process ends with the test's own, whatever becomes of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from engines.bus.server import binary

from .answers import ENCODER, RANKER, TALKER
from .links import Network

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "engines" / "bus" / "launch.py"
MODELS = Path(__file__).with_name("models")
LITESTAR = Path(sys.executable).parent / "litestar"
START_S = 60.0
STOP_S = 30.0


def fixed_port() -> int:
    """A free port that stays free while its owner is away: the kernel gives it to no outgoing connection."""
    while True:
        port = 15_000 + secrets.randbelow(17_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Process:
    """A process that can be started again; its output is appended to a file."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = [sys.executable, "-I", str(LAUNCH), str(os.getpid()), *command]
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)

    @property
    def itself(self) -> psutil.Process:
        """The running process."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    async def ended(self, limit: float = STOP_S) -> int:
        """Wait for its end; return its status, 0 where it was never started."""
        if self._process is None:
            return 0
        await until(lambda: not self.running, limit, f"the end of {self.name}")
        return int(self._process.returncode)


class Testbed:
    """``nodes`` NATS nodes, ``gateways`` gateways and ``workers`` workers.

    Links are named ``gateway-0:nats-2`` (one way in) and ``nats-0:nats-1`` (a route of the NATS cluster).
    """

    __test__ = False  # pytest would take it for one

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        gateways: int = 3,
        workers: int = 4,
        settings: Mapping[str, str],
        linked: bool = True,
    ) -> None:
        """Without ``linked``, processes reach the bus directly, as a measurement wants it."""
        self.directory = directory
        self.runs = directory / "runs"
        self.network = Network()
        self._linked = linked
        self.monitors = [fixed_port() for _ in range(nodes)]
        self._ports = [fixed_port() for _ in range(nodes)]
        self._routes = [fixed_port() for _ in range(nodes)]
        self.nodes = [self._node(index, port) for index, port in enumerate(self._ports)]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "LITESTAR_"))}
        self._environment = {
            **inherited,
            "SIE_MODELS_DIR": str(MODELS),
            "SIE_NATS_REPLICAS": str(nodes),
            "SIE_NATS_ACK_WAIT_S": "2",
            "OASGATE_TEST_RUNS": str(self.runs),
            **settings,
        }
        self.http = [fixed_port() for _ in range(gateways)]
        self.gateways = [self._gateway(index) for index in range(gateways)]
        self.workers = [self._worker(index) for index in range(workers)]
        self.front = self.network.open("front", *self.http)

    def urls(self) -> list[str]:
        """Where the gateways listen, without a path."""
        return [f"http://127.0.0.1:{port}" for port in self.http]

    async def start(self) -> None:
        """Start everything; returns when every gateway knows every worker and NATS is well."""
        for node in self.nodes:
            node.start()
        await self.nodes_are_well()
        for process in (*self.gateways, *self.workers):
            process.start()
        await self.gateways_know(len(self.workers))

    async def stop(self) -> dict[str, int]:
        """Stop everything; return the exit statuses of gateways and workers."""
        statuses: dict[str, int] = {}
        try:
            for group in (self.workers, self.gateways):
                for process in group:
                    process.send(signal.SIGTERM)
                for process in group:
                    statuses[process.name] = await process.ended()
        finally:
            for process in (*self.workers, *self.gateways, *self.nodes):
                process.send(signal.SIGKILL)
            for node in self.nodes:
                await node.ended()
            self.network.close()
        return statuses

    async def gateways_know(self, workers: int) -> None:
        """Wait until every gateway has heard of that many healthy workers with their models loaded."""

        def know() -> bool:
            for url in self.urls():
                health = get(f"{url}/health")
                healthy = [worker for worker in (health or {}).get("workers", []) if worker["healthy"]]
                if len([worker for worker in healthy if len(worker["loaded_models"]) == 3]) < workers:
                    return False
            return True

        await until(know, START_S, f"{workers} workers at every gateway", self.tail)

    async def nodes_are_well(self) -> None:
        """Wait until every node of NATS has what it should have."""

        def well() -> bool:
            return all((get(f"http://127.0.0.1:{port}/healthz") or {}).get("status") == "ok" for port in self.monitors)

        await until(well, START_S, "the nodes of NATS", self.tail)

    @property
    def direct(self) -> str:
        """The address of the bus without any link in between."""
        return ",".join(f"nats://127.0.0.1:{port}" for port in self._ports)

    def leader(self, stream: str = "WORK_POOL_default") -> int:
        """Index of the node that leads a stream."""
        for port in self.monitors:
            shown = get(f"http://127.0.0.1:{port}/jsz?streams=1") or {}
            for account in shown.get("account_details", []):
                for detail in account.get("stream_detail", []):
                    if detail["name"] == stream and (name := detail["cluster"].get("leader")):
                        return int(name.removeprefix("nats-"))
        raise AssertionError(f"{stream} has no leader")

    def ways_in(self, name: str) -> list[str]:
        """The links of a gateway or worker to the bus."""
        return [f"{name}:nats-{node}" for node in range(len(self.nodes))]

    def routes(self, node: int) -> list[str]:
        """The links of one node of NATS to the others, both ways."""
        others = [other for other in range(len(self.nodes)) if other != node]
        return [link for other in others for link in (f"nats-{node}:nats-{other}", f"nats-{other}:nats-{node}")]

    def tail(self, lines: int = 15) -> str:
        """The ends of all logs."""
        parts = []
        for process in (*self.nodes, *self.gateways, *self.workers):
            text = process.log.read_text(errors="replace") if process.log.exists() else ""
            kept = [line for line in text.splitlines() if not line.startswith('{"time"')]
            parts.append("\n".join([f"--- {process.name}", *kept[-lines:]]))
        return "\n".join(parts)

    def _node(self, index: int, port: int) -> Process:
        name = f"nats-{index}"
        peers = [other for other in range(len(self._routes)) if other != index]
        routes = [self.network.open(f"{name}:nats-{other}", self._routes[other]) for other in peers]
        config = self.directory / f"{name}.conf"
        monitor, route = self.monitors[index], self._routes[index]
        config.write_text(_config(name, self.directory / name, port, monitor, route, routes))
        return Process(name, [binary(), "-c", str(config)], dict(os.environ), self.directory / f"{name}.log")

    def bus(self, name: str) -> str:
        """The address of the bus for a process of that name, by links of its own."""
        if not self._linked:
            return self.direct
        links = [self.network.open(f"{name}:nats-{node}", port) for node, port in enumerate(self._ports)]
        return ",".join(f"nats://127.0.0.1:{port}" for port in links)

    def _gateway(self, index: int) -> Process:
        name = f"gateway-{index}"
        command = [str(LITESTAR), "run", "--host", "127.0.0.1", "--port", str(self.http[index])]
        environment = {**self._environment, "SIE_NATS_URL": self.bus(name)}
        return Process(name, command, environment, self.directory / f"{name}.log")

    def _worker(self, index: int) -> Process:
        name = f"worker-{index}"
        command = [str(LITESTAR), "--app", "tests.cluster.application:app", "worker"]
        command += ["--models", f"{TALKER},{ENCODER},{RANKER}", "--max-inflight", "64"]
        environment = {**self._environment, "SIE_NATS_URL": self.bus(name)}
        return Process(name, command, environment, self.directory / f"{name}.log")


def _config(name: str, directory: Path, port: int, monitor: int, route: int, routes: Sequence[int]) -> str:
    """A node that tells nobody any address, so that every connection goes through the links."""
    return f"""
server_name: "{name}"
host: "127.0.0.1"
port: {port}
http: "127.0.0.1:{monitor}"
ping_interval: "2s"
ping_max: 2
max_payload: 8388608
lame_duck_duration: "30s"
lame_duck_grace_period: "1s"
jetstream {{ store_dir: "{directory}", max_mem: 4G, max_file: 1G }}
cluster {{
  name: "test"
  host: "127.0.0.1"
  port: {route}
  advertise: "127.0.0.1:1"
  no_advertise: true
  pool_size: -1
  routes: [{", ".join(f'"nats://127.0.0.1:{peer}"' for peer in routes)}]
}}
"""


def get(url: str) -> Any:
    """The JSON behind a URL; ``None`` where nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        error.close()
        return None
    except (OSError, ValueError):
        return None


async def until(
    done: Callable[[], bool], limit: float, what: str, explain: Callable[[], str] = lambda: "", pause: float = 0.1
) -> None:
    """Wait until ``done``; the event loop stays free meanwhile."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    while not await asyncio.to_thread(done):
        assert loop.time() < end, f"waited {limit:.0f} s for {what}\n{explain()}"
        await asyncio.sleep(pause)

"""A bus that speaks TLS with certificates of both sides and lets in whoever has a credentials file of its operator."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from engines.bus.connection import connect
from engines.bus.server import binary
from engines.bus.settings import BusSettings

from . import answers
from .credentials import Authority, Operator
from .questions import Asker, questions
from .testbed import LITESTAR, MODELS, Process, fixed_port, get, until


class Bus:
    """One NATS node, its authority and its operator."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.operator = Operator.make()
        self.port = fixed_port()
        certificate, key = self.authority.issue("server")
        config = directory / "nats.conf"
        config.write_text(
            f"""
host: "127.0.0.1"
port: {self.port}
jetstream {{ store_dir: "{directory / "store"}", max_mem: 4G, max_file: 1G }}
tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{self.authority.certificate}", verify: true }}
{self.operator.config}
"""
        )
        self.node = Process("nats", [binary(), "-c", str(config)], os.environ, directory / "nats.log")

    def settings(self) -> dict[str, str]:
        """What a gateway or worker that may join is told."""
        certificate, key = self.authority.issue("client")
        return {
            "SIE_NATS_URL": f"tls://127.0.0.1:{self.port}",
            "SIE_NATS_TLS_CA": str(self.authority.certificate),
            "SIE_NATS_TLS_CERT": str(certificate),
            "SIE_NATS_TLS_KEY": str(key),
            "SIE_NATS_CREDENTIALS": str(self.operator.user(self.directory / "user.creds")),
        }

    def process(self, name: str, *command: str, settings: Mapping[str, str]) -> Process:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "LITESTAR_"))}
        environment = {**inherited, "SIE_MODELS_DIR": str(MODELS), **settings}
        return Process(name, [str(LITESTAR), *command], environment, self.directory / f"{name}.log")


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    made = Bus(tmp_path)
    made.node.start()
    try:
        yield made
    finally:
        made.node.send(signal.SIGKILL)
        await made.node.ended()


async def test_gateway_and_worker_join_with_tls_and_a_credentials_file(bus: Bus) -> None:
    settings = bus.settings()
    port = fixed_port()
    gateway = bus.process("gateway", "run", "--host", "127.0.0.1", "--port", str(port), settings=settings)
    application = ("--app", "tests.cluster.application:app", "worker")
    models = ("--models", f"{answers.TALKER},{answers.ENCODER},{answers.RANKER}")
    worker = bus.process("worker", *application, *models, settings=settings)
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        workers = (get(f"{url}/health") or {}).get("workers", [])
        return [len(status["loaded_models"]) for status in workers] == [3]

    try:
        gateway.start()
        worker.start()
        await until(ready, 60.0, "the worker", lambda: gateway.log.read_text() + worker.log.read_text())
        async with Asker([url], 30.0) as asker:
            for question in questions(3, 40):
                outcome = await asker.ask(question)
                assert outcome.verdict == "right", outcome
    finally:
        for process in (worker, gateway):
            process.send(signal.SIGTERM)
        # uvicorn ends in order, then by the signal that it got
        assert [await process.ended() for process in (worker, gateway)] == [0, -signal.SIGTERM]


@pytest.mark.parametrize("lacking", ["SIE_NATS_CREDENTIALS", "SIE_NATS_TLS_CERT", "SIE_NATS_TLS_CA"])
async def test_who_lacks_one_of_them_stays_outside(bus: Bus, lacking: str) -> None:
    whole = BusSettings.from_env(bus.settings())
    # the node lets in who has everything, so that what follows is a refusal and not a node that is not up
    inside = await connect(whole, "inside")
    await inside.close()
    less = {name: value for name, value in bus.settings().items() if name != lacking}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.0):
            await connect(BusSettings.from_env(less), "outside")


async def test_credentials_of_another_operator_are_refused(bus: Bus, tmp_path: Path) -> None:
    foreign = Operator.make().user(tmp_path / "foreign.creds")
    settings = {**bus.settings(), "SIE_NATS_CREDENTIALS": str(foreign)}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.0):
            await connect(BusSettings.from_env(settings), "foreign")

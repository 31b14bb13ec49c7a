"""The first signal lets work end, the second one does not: gateways and workers as processes."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engines.protocol.cluster import Answer, Route, Timeouts
from engines.protocol.events import Completed, Delta, Failed
from tests.live import Server

from .conftest import ask, collect, gateway, generate, until, worker


@contextmanager
def unfinished(server: Server) -> Iterator[socket.socket]:
    """A request whose body never ends."""
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode())
        server.wait(lambda: b"sie_gateway_requests_open 2.0" in metrics(server), 30.0, "the request to run")
        yield connection


async def begun(stream: Answer) -> None:
    """Wait for output: work without any goes back to the queue."""
    async for event in stream:
        if isinstance(event, Delta):
            return


def metrics(server: Server) -> bytes:
    body = server.request("GET", "/metrics")[1]
    return body if isinstance(body, bytes) else b""


def gone(server: Server) -> bool:
    return not server.processes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_gateway_that_waits_for_a_request(tmp_path: Path, number: signal.Signals) -> None:
    server = Server(tmp_path / "log", {"SIE_DRAIN_TIMEOUT_S": "600", "SIE_PRELOAD_MODELS": ""})
    server.start()
    try:
        with unfinished(server):
            os.kill(server.pid, number)
            server.wait(lambda: server.status("/healthz") == 0, 30.0, "the port to be closed")
            assert not gone(server), "the gateway does not wait for its request"
            assert server.stop(number) == []
    finally:
        server.stop(signal.SIGKILL)


async def test_a_second_signal_ends_a_worker_that_waits_for_its_requests(bus):
    async with gateway(bus) as cluster, worker(bus, "--name", "a", "--drain", "600") as process:
        await until(lambda: len(cluster.dispatcher.workers()) == 1)
        stream = await cluster.dispatcher.submit(generate("slow:100000"), Route(), Timeouts(600.0))
        await begun(stream)
        process.send_signal(signal.SIGTERM)
        await until(lambda: not any(status.healthy for status in cluster.dispatcher.workers()))
        assert process.returncode is None, "the worker does not wait for its stream"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        last = (await collect(stream))[-1]
        assert isinstance(last, Failed)
        assert (last.code, last.retry_after) == ("transport_failure", 1)


async def test_a_worker_that_drains_takes_no_more_while_others_do(bus):
    async with gateway(bus) as cluster, worker(bus, "--name", "a", "--drain", "600") as process:
        await until(lambda: len(cluster.dispatcher.workers()) == 1)
        stream = await cluster.dispatcher.submit(generate("slow:100000"), Route(), Timeouts(600.0))
        await begun(stream)
        async with worker(bus, "--name", "b"):
            await until(lambda: len(cluster.dispatcher.workers()) == 2)
            process.send_signal(signal.SIGTERM)
            await until(lambda: [status.healthy for status in cluster.dispatcher.workers()] == [False, True])
            for _ in range(10):
                last = (await ask(cluster, "echo:1"))[-1]
                assert isinstance(last, Completed)
                assert last.worker == "b"
        await stream.aclose()
        await process.wait()

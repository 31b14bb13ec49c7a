"""A real server while things go wrong beneath it. The first test meets models that are not loaded."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.live import CHAT_MODEL, Server

STORY = {
    "model": CHAT_MODEL,
    "messages": [{"role": "user", "content": "Write a very long story about the sea."}],
    "max_tokens": 1500,
    "min_tokens": 1500,
    "stream": True,
}
SHORT = {"model": CHAT_MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
HEAVY = ("libtorch", "/vllm/", "/transformers/", "/sentence_transformers/")


@pytest.fixture
def client(fragile: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fragile.url, timeout=300) as client:
        yield client


def events(response: httpx.Response) -> Iterator[str]:
    """Yield the data of each event of a stream."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


def test_healthz_answers_while_a_model_loads(fragile: Server, client: httpx.Client) -> None:
    answered = threading.Event()
    statuses: list[int] = []

    def chat() -> None:
        fragile.wait(lambda: fragile.post("/v1/chat/completions", SHORT)[0] == 200, 300, "a first answer")
        answered.set()

    loading = threading.Thread(target=chat)
    loading.start()
    while loading.is_alive():
        statuses.append(client.get("/healthz", timeout=10).status_code)
        time.sleep(0.2)
    loading.join()
    assert answered.is_set(), fragile.tail()
    assert set(statuses) == {200}


def test_healthz_answers_while_20_mb_are_posted(fragile: Server, client: httpx.Client) -> None:
    texts = ["x" * 1000] * 20_000
    body = json.dumps({"model": CHAT_MODEL, "input": texts}).encode()
    assert len(body) > 20_000_000
    refused: list[int] = []
    posting = threading.Thread(target=lambda: refused.append(post_raw(fragile, "/v1/embeddings", body)))
    posting.start()
    statuses = [client.get("/healthz", timeout=10).status_code]
    while posting.is_alive():
        statuses.append(client.get("/healthz", timeout=10).status_code)
    posting.join()
    assert refused == [413]
    assert set(statuses) == {200}


def test_gateway_has_no_engine_in_its_memory(fragile: Server, client: httpx.Client) -> None:
    assert client.post("/v1/chat/completions", json=SHORT).status_code == 200
    gateway = Path(f"/proc/{fragile.pid}/maps").read_text()
    assert [name for name in HEAVY if name in gateway] == []
    worker = fragile.worker()
    family = [worker, *worker.children(recursive=True)]
    assert any("libtorch" in Path(f"/proc/{process.pid}/maps").read_text() for process in family)


def test_killed_worker_ends_the_stream_with_an_error_and_the_next_request_works(
    fragile: Server, client: httpx.Client
) -> None:
    killed = fragile.worker()
    family = [killed, *killed.children(recursive=True)]
    with client.stream("POST", "/v1/chat/completions", json=STORY) as response:
        assert response.status_code == 200
        received = []
        for event in events(response):
            received.append(event)
            if len(received) == 5:
                killed.kill()
    assert received[-1] == "[DONE]"
    failure = json.loads(received[-2])
    assert failure["error"]["type"] == "server_error"
    assert failure["error"]["code"]
    assert failure["choices"][0]["finish_reason"] is None
    assert not any("error" in json.loads(event) for event in received[:-2])

    fragile.wait(lambda: fragile.post("/v1/chat/completions", SHORT)[0] == 200, 300, "the next answer")
    assert fragile.worker().pid != killed.pid
    fragile.wait(lambda: not any(alive(process) for process in family), 30, "the old worker's children to end")


def test_client_that_leaves_a_stream_frees_the_engine(fragile: Server, client: httpx.Client) -> None:
    with client.stream("POST", "/v1/chat/completions", json=STORY) as response:
        for _, _ in zip(range(3), events(response), strict=False):
            pass
    fragile.wait(lambda: in_flight(client) == 0, 60, "the engine to drop the abandoned work")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_nox_serve_stops_with_one_signal_and_leaves_nothing(tmp_path: Path, sent: signal.Signals) -> None:
    nox = [sys.executable, "-m", "nox", "--non-interactive", "-s", "serve", "--"]
    running = Server(tmp_path / "server.log", command=nox)
    try:
        running.start()
    finally:
        left = running.stop(sent)
    assert left == [], running.tail()
    assert running.url in running.tail()


def in_flight(client: httpx.Client) -> int:
    health = client.get("/health").json()
    return sum(worker.get("queue_depth", 0) + worker.get("inflight_batches", 0) for worker in health["workers"])


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def post_raw(server: Server, path: str, body: bytes) -> int:
    """Post a body in small steps and return the status, also when the server answers before it has read everything."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        try:
            connection.sendall(head.encode())
            for start in range(0, len(body), 1 << 20):
                connection.sendall(body[start : start + (1 << 20)])
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has answered and closed
        answer = connection.recv(64)
    return int(answer.split(b" ", 2)[1])

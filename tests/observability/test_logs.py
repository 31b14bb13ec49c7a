"""What the processes of a real server write and show of themselves holds no token."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.live import Server

TOKENS = ("inference-token-aaaa1111", "inference-token-bbbb2222", "token-of-the-file-cccc3333")
ADMIN = "admin-token-dddd4444"
WRONG = "token-that-was-guessed-eeee5555"


@pytest.fixture
def server(tmp_path: Path) -> Any:
    (tmp_path / "tokens").write_text(TOKENS[2])
    settings = {
        "SIE_AUTH_MODE": "token",
        "SIE_AUTH_TOKENS": ",".join(TOKENS[:2]),
        "SIE_AUTH_TOKENS_FILE": str(tmp_path / "tokens"),
        "SIE_ADMIN_TOKEN": ADMIN,
        "SIE_LOG_LEVEL": "debug",
        "SIE_PRELOAD_MODELS": "",
    }
    running = Server(tmp_path / "server.log", settings)
    running.token = TOKENS[0]
    running.start()
    yield running
    running.stop()


def ask(server: Server, token: str, method: str, path: str, body: bytes | None = None) -> int:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    return server.request(method, path, body, headers)[0]


def watch(server: Server, **options: Any) -> int:
    """Status of an upgrade."""
    try:
        with connect(f"ws{server.url.removeprefix('http')}/ws/cluster-status?token={TOKENS[1]}", **options) as opened:
            opened.recv()
    except InvalidStatus as refused:
        return refused.response.status_code
    return 101


def test_no_token_is_in_the_log_nor_in_the_list_of_processes(server: Server) -> None:
    server.wait(lambda: server.request("GET", "/health")[1]["status"] == "healthy", 60, "a worker")
    pool = json.dumps({"name": "mine", "gpus": {"cpu": 1}}).encode()
    for token in (*TOKENS, WRONG):
        expected = 401 if token == WRONG else 200
        assert ask(server, token, "GET", "/v1/models") == expected
        assert ask(server, token, "GET", f"/v1/models?key={token}") == expected
        assert ask(server, token, "POST", "/v1/pools", pool) == (401 if token == WRONG else 403)
        assert ask(server, token, "POST", "/v1/chat/completions", f'{{"model": "{token}'.encode()) in (400, 401)
        assert ask(server, token, "GET", f"/nowhere?token={token}") == (401 if token == WRONG else 404)
    assert ask(server, ADMIN, "POST", "/v1/pools", pool) == 201
    assert ask(server, ADMIN, "DELETE", "/v1/pools/mine") == 200
    for token, status in ((TOKENS[1], 101), (WRONG, 401)):
        assert watch(server, additional_headers={"authorization": f"Bearer {token}"}) == status
        name: Any = "sie.bearer." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
        assert watch(server, subprotocols=["sie.status", name]) == status
    processes = server.processes()
    bus = server.worker().environ()["SIE_NATS_TOKEN"]
    shown = [" ".join(process.cmdline()) for process in processes]
    assert server.stop() == []
    written = server.log.read_text()
    assert written.count('"audit":"create_pool"') == 5
    assert written.count('"route":"/ws/cluster-status"') == 4
    secrets = [*TOKENS, ADMIN, WRONG, bus]
    secrets += [base64.urlsafe_b64encode(secret.encode()).decode().rstrip("=") for secret in secrets]
    for secret in secrets:
        assert secret not in written, secret
        assert not any(secret in line for line in shown), secret
    assert "Bearer" not in written

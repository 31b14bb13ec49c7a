"""How long the server keeps an idle connection."""

from __future__ import annotations

import http.client
import time
from pathlib import Path

import pytest

from handlers.http.idle import DEFAULT_S, seconds
from handlers.settings import SettingError
from tests.live import Server


def test_the_limit_is_read_from_the_environment() -> None:
    assert seconds({}) == DEFAULT_S == 75
    assert seconds({"SIE_IDLE_TIMEOUT_S": "5"}) == 5
    for wrong in ("0", "-1", "1.5", "soon"):
        with pytest.raises(SettingError, match="SIE_IDLE_TIMEOUT_S"):
            seconds({"SIE_IDLE_TIMEOUT_S": wrong})


@pytest.mark.parametrize(("limit", "kept"), [("1", False), (None, True)])
def test_litestar_run_keeps_an_idle_connection_as_long_as_it_is_told(
    tmp_path: Path, limit: str | None, kept: bool
) -> None:
    settings = {"SIE_NATS_URL": "nats://127.0.0.1:1", **({"SIE_IDLE_TIMEOUT_S": limit} if limit else {})}
    server = Server(tmp_path / "server.log", settings)
    try:
        server.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        # uvicorn's own limit is 5 s
        time.sleep(6.5)
        connection.auto_open = False
        try:
            connection.request("GET", "/healthz")
            answered = connection.getresponse().status == 200
        except (http.client.HTTPException, ConnectionError):
            answered = False
        connection.close()
    finally:
        left = server.stop()
    assert left == []
    assert answered is kept

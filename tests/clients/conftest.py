"""A second server, guarded by a token, for tests that break things."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live import Server

TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own that asks for ``TOKEN``; its models are not loaded. No process of it may be left."""
    settings = {"SIE_AUTH_MODE": "token", "SIE_AUTH_TOKENS": TOKEN, "SIE_ADMIN_TOKEN": "admin-only"}
    running = Server(tmp_path_factory.mktemp("guarded") / "server.log", settings)
    try:
        running.start()
        yield running
    finally:
        left = running.stop()
    assert left == [], f"processes outlived the server: {left}\n{running.tail()}"

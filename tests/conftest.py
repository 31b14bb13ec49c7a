"""Fixtures that start the real server. One server serves all tests of a run; faults get their own."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from tests.live import ADMIN_KEY, KEY, Server

# how long an example takes says something of the machine, not of the code
hypothesis.settings.register_profile("untimed", parent=hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks for ``KEY``, with its models loaded. When it has stopped, no process of it may be left."""
    settings = {"SIE_AUTH_MODE": "token", "SIE_AUTH_TOKENS": KEY, "SIE_ADMIN_TOKEN": ADMIN_KEY}
    settings["SIE_ALLOW_CHAT_TEMPLATE"] = "true"
    running = Server(tmp_path_factory.mktemp("server") / "server.log", settings)
    try:
        running.start()
        running.warm()
        yield running
    finally:
        left = running.stop()
    assert left == [], f"processes outlived the server: {left}\n{running.tail()}"


@pytest.fixture(scope="session")
def base_url(server: Server) -> str:
    """Where the server of this run listens, without a path."""
    return server.url

"""A second server, open to all, for tests that break things."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live import Server


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own, as a person gets it by default; nothing is loaded yet. No process of it may be left."""
    running = Server(tmp_path_factory.mktemp("fragile") / "server.log")
    try:
        running.start()
        yield running
    finally:
        left = running.stop()
    assert left == [], f"processes outlived the server: {left}\n{running.tail()}"

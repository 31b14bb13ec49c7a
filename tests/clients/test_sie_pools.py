"""Pool, capacity and watch calls of the official SIE SDK against a real server that asks for no token."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients import apart
from tests.live import Server, opened


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with opened(tmp_path_factory.mktemp("pools") / "server.log", {"SIE_PRELOAD_MODELS": ""}) as running:
        yield running


@pytest.mark.parametrize("release", ["sie-sdk-0.6.26", "sie-sdk-0.10.1"])
def test_sie_sdk_pools(open_server: Server, release: str) -> None:
    apart.run("sie_pools", release, open_server.url)

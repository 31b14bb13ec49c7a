"""The official SIE SDK, its release of this contract and its newest, against the real server. It needs Python 3.12."""

from __future__ import annotations

import pytest

from tests.clients import apart


@pytest.mark.parametrize("release", ["sie-sdk-0.6.26", "sie-sdk-0.10.1"])
def test_sie_sdk(base_url: str, release: str) -> None:
    apart.run("sie_sdk", release, base_url)

"""Pools, capacity and the live state, as the official SIE SDK asks for them of a server without authentication.

``SERVER_URL`` is the server's address. Started by ``tests/clients/test_sie_pools.py``.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Iterator

import pytest
from sie_sdk import SIEAsyncClient, SIEClient
from sie_sdk.client.errors import RequestError, SIEError

URL = os.environ["SERVER_URL"]
EMBED = "sentence-transformers/all-MiniLM-L6-v2"

warnings.filterwarnings("ignore", message="SDK version")


@pytest.fixture
def client() -> Iterator[SIEClient]:
    with SIEClient(URL) as client:
        yield client


@pytest.fixture
def profile(client: SIEClient) -> str:
    """The machine profile of the one worker."""
    return client.get_capacity()["workers"][0]["gpu"]


def test_capacity_lists_the_worker(client: SIEClient, profile: str) -> None:
    capacity = client.get_capacity(gpu=profile)
    assert capacity["worker_count"] == 1
    assert capacity["workers"][0]["healthy"]
    assert client.get_capacity(gpu="none-such")["workers"] == []
    assert client.wait_for_capacity(profile, timeout_s=20.0, poll_interval_s=0.1)["worker_count"] == 1


def test_watching_yields_frames(client: SIEClient) -> None:
    frames = client.watch(mode="cluster")
    first, second = next(frames), next(frames)
    frames.close()
    assert second["timestamp"] > first["timestamp"]
    assert first["cluster"]["worker_count"] == 1


def test_a_pool_is_made_used_and_removed(client: SIEClient, profile: str) -> None:
    client.create_pool("Sdk-Pool", {profile: 1}, pinned_models=[EMBED])
    pool = client.get_pool("sdk-pool")
    assert pool is not None
    assert pool["status"]["state"] == "active"
    assert pool["spec"]["pinned_models"] == [EMBED]
    result = client.encode(EMBED, {"text": "hello"}, gpu=f"sdk-pool/{profile}", provision_timeout_s=200.0)
    assert result["dense"].shape == (384,)
    assert client.delete_pool("sdk-pool") is True
    assert client.get_pool("sdk-pool") is None
    assert client.delete_pool("sdk-pool") is False


def test_a_pool_is_made_used_and_removed_by_the_async_client(profile: str) -> None:
    async def work() -> None:
        async with SIEAsyncClient(URL) as client:
            assert (await client.get_capacity(gpu=profile))["worker_count"] == 1
            await client.create_pool("async-pool", {profile: 1})
            pool = await client.get_pool("async-pool")
            assert pool is not None
            assert pool["status"]["state"] == "active"
            result = await client.encode(
                EMBED, {"text": "hello"}, gpu=f"async-pool/{profile}", provision_timeout_s=200.0
            )
            assert result["dense"].shape == (384,)
            assert await client.delete_pool("async-pool") is True
            assert await client.get_pool("async-pool") is None
            assert await client.delete_pool("async-pool") is False

    asyncio.run(work())


def test_what_cannot_be_is_an_error_with_its_code(client: SIEClient, profile: str) -> None:
    with pytest.raises(SIEError, match="operator"):
        client.create_pool("default", {profile: 1})
    with pytest.raises(SIEError, match="pinned"):
        client.create_pool("p", {profile: 1}, pinned_models=["no/such"])
    with pytest.raises(RequestError) as refused:
        client.encode(EMBED, {"text": "hello"}, gpu=f"nowhere/{profile}")
    assert refused.value.code == "POOL_NOT_FOUND"

"""Connecting to NATS: for ever, with whatever credentials the settings name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from nats.aio.client import Client

from .settings import BusSettings

log = logging.getLogger("sie.bus")

PENDING_BYTES = 64 << 20
RECONNECT_PAUSE = 0.2
PING_EVERY = 3
"""Seconds between two signs of life; a server that leaves two without an answer is given up for another."""


class _Client(Client):  # type: ignore[misc]  # nats-py has no types
    """A client that knows that it was closed on purpose; nats-py overwrites its status while it reconnects."""

    left = False

    async def close(self) -> None:
        self.left = True
        await super().close()


async def connect(
    settings: BusSettings,
    name: str,
    *,
    on_reconnect: Callable[[], Awaitable[None]] | None = None,
    on_disconnect: Callable[[], Awaitable[None]] | None = None,
) -> Client:
    """Connect and stay connected: a server that is down or goes away is tried again without end.

    Raises:
        ValueError: the settings name no URL.
    """
    if not settings.url:
        raise ValueError("SIE_NATS_URL is not set")

    client = _Client()

    async def failed(error: Exception) -> None:
        if client.left and asyncio.current_task() is client._reconnection_task:
            # nats-py can miss the cancellation of its reconnecting, and would go on for ever
            raise asyncio.CancelledError
        log.warning("bus: %s", _describe(error))

    async def lost() -> None:
        if client.is_closed:
            return  # we left
        log.warning("bus: connection lost, reconnecting")
        if on_disconnect is not None:
            await on_disconnect()

    async def found() -> None:
        log.info("bus: connected again")
        if on_reconnect is not None:
            await on_reconnect()

    await client.connect(
        servers=[url.strip() for url in settings.url.split(",") if url.strip()],
        name=name,
        token=settings.token,
        user=settings.user,
        password=settings.password,
        user_credentials=settings.credentials,
        tls=settings.tls(),
        max_reconnect_attempts=-1,
        reconnect_time_wait=RECONNECT_PAUSE,
        connect_timeout=5,
        ping_interval=PING_EVERY,
        max_outstanding_pings=2,
        pending_size=PENDING_BYTES,
        error_cb=failed,
        disconnected_cb=lost,
        reconnected_cb=found,
    )
    return client


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__

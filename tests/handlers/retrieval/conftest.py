"""The retrieval surface behind its real routes, with a scripted dispatcher in place of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cache
from typing import Any, cast

import httpx
import pytest
from litestar import Litestar

from app import create_app
from handlers.http.access import AccessLog
from handlers.services import Services
from handlers.settings import Settings

from . import fakes


class Client(httpx.AsyncClient):
    """Posts to the application; ``dispatcher`` has seen the work and says what comes of it."""

    dispatcher: fakes.Dispatcher


@cache
def application() -> tuple[Litestar, fakes.Dispatcher]:
    """One application for all tests, and the dispatcher behind it."""
    dispatcher = fakes.Dispatcher()
    services = Services(fakes.Catalog(), dispatcher, fakes.Cluster(), Settings(gpu_types=("l4",)))
    return create_app(services, AccessLog(None)), dispatcher


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of an application whose dispatcher answers honestly until a test scripts it."""
    app, dispatcher = application()
    vars(dispatcher).clear()
    dispatcher.__init__()  # type: ignore[misc]
    transport = httpx.ASGITransport(app=cast(Any, app))
    async with Client(transport=transport, base_url="http://oasgate") as client:
        client.dispatcher = dispatcher
        yield client

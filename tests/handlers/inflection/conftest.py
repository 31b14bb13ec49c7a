"""The second contract behind its real routes, with a scripted dispatcher in place of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import pytest

from handlers.http.access import AccessLog
from handlers.inflection import Inflection, Options
from handlers.services import Services
from handlers.settings import Settings
from tests.handlers.generation import fakes
from tests.handlers.generation.conftest import events

PATH = "/v1/chat/completions"
OWN = Options(default_model="org/chat", allow_chat_template=True)


class Client(httpx.AsyncClient):
    """Posts to the application; ``dispatcher`` has seen the work and says what comes of it."""

    dispatcher: fakes.Dispatcher

    @property
    def work(self) -> Any:
        """The only work item that was submitted."""
        (work,) = self.dispatcher.works
        return work

    async def chat(self, **body: Any) -> httpx.Response:
        """A chat request with ``body`` over the least one."""
        return await self.post(PATH, json={"messages": [{"role": "user", "content": "hi"}], **body})

    async def chunks(self, **body: Any) -> list[Any]:
        """The payloads of a stream; the last is ``[DONE]``."""
        response = await self.chat(stream=True, **body)
        assert response.status_code == 200, response.text
        return events(response.content)


def make(own: Options = OWN, settings: Settings | None = None) -> Client:
    """A client of the contract with other options or settings."""
    dispatcher = fakes.Dispatcher()
    services = Services(fakes.Catalog(), dispatcher, fakes.Cluster(), settings or Settings())
    second = Inflection(services, own, AccessLog(None), version="1.2.3")
    client = Client(transport=httpx.ASGITransport(app=cast(Any, second.application)), base_url="http://oasgate")
    client.dispatcher = dispatcher
    return client


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of an application whose dispatcher says hello until a test scripts it."""
    async with make() as made:
        yield made

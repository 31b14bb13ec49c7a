"""The OpenAI SDK waits as long as it is told, in milliseconds, and then has its answer."""

from __future__ import annotations

import httpx
import openai
import pytest
from openai import _base_client

from app import create_app
from handlers.http.access import AccessLog
from handlers.limits import Limiter
from handlers.services import Services
from handlers.settings import Settings
from tests.handlers.generation.fakes import Catalog, Cluster, Dispatcher


async def test_a_limited_request_is_sent_again_after_the_milliseconds_that_the_answer_names(monkeypatch):
    settings = Settings(rate_limit_rps=4.0, rate_limit_burst=1.0)
    now = 100.0
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        waited.append(seconds)
        now += seconds

    monkeypatch.setattr(_base_client.anyio, "sleep", sleep)
    limiter = Limiter(settings, lambda: now)
    services = Services(Catalog(), Dispatcher(), Cluster(), settings, limiter=limiter)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(create_app(services, AccessLog(None)))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport) as http:
        client = openai.AsyncOpenAI(base_url="http://gateway/v1", api_key="k", http_client=http)
        for _ in range(3):
            reply = await client.chat.completions.create(model="org/chat", messages=[{"role": "user", "content": "Hi"}])
            assert reply.choices[0].finish_reason == "stop"
    assert waited == [pytest.approx(0.25, abs=0.001)] * 2

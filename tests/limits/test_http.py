"""What a caller sees of its limits, and that others see nothing of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from engines.protocol.cluster import Route, Timeouts
from engines.protocol.work import Work
from generated.sie.operations import Response
from handlers.limits import Admitting
from tests.bus.conftest import generate
from tests.http.driver import Exchange
from tests.http.fakes import JSON, OpenAIErrorEnvelope, Reply, operation, server

GOOD = b'{"model": "m"}'
PLAIN = operation()
DECLARED = msgspec.structs.replace(
    PLAIN, responses={**PLAIN.responses, 429: Response(content={JSON: (OpenAIErrorEnvelope,)})}
)


async def answer(context: Any, body: Any) -> Reply:
    return Reply(body.model)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_a_limited_caller_gets_the_declared_429_and_others_are_served():
    serving = server(DECLARED, rate_limit_rps=0.5, rate_limit_burst=1.0)
    assert (await Exchange(GOOD, bearer("a")).run(serving, DECLARED, answer)).status == 200
    refused = await Exchange(GOOD, bearer("a")).run(serving, DECLARED, answer)
    assert refused.status == 429
    assert refused.json["error"]["type"] == "rate_limit_error"
    assert refused.json["error"]["code"] == "rate_limit_exceeded"
    assert refused.headers["retry-after"] == "2"
    assert 1900 <= int(refused.headers["retry-after-ms"]) <= 2000
    assert "x-should-retry" not in refused.headers
    assert refused.received == 0, "the body of a refused request is not read"
    assert (await Exchange(GOOD, bearer("b")).run(serving, DECLARED, answer)).status == 200


async def test_an_operation_that_declares_no_429_says_it_with_its_503():
    serving = server(PLAIN, max_concurrent_requests=1)
    release = asyncio.Event()

    async def slow(context: Any, body: Any) -> Reply:
        await release.wait()
        return Reply(body.model)

    first = asyncio.create_task(Exchange(GOOD, bearer("a")).run(serving, PLAIN, slow))
    await asyncio.sleep(0)
    refused = await Exchange(GOOD, bearer("a")).run(serving, PLAIN, answer)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert refused.headers["x-sie-error-code"] == "RESOURCE_EXHAUSTED"
    release.set()
    assert (await first).status == 200
    assert (await Exchange(GOOD, bearer("a")).run(serving, PLAIN, answer)).status == 200


async def test_a_stream_counts_until_its_last_byte():
    serving = server(PLAIN, max_concurrent_requests=1)
    release = asyncio.Event()

    async def stream(context: Any, body: Any) -> AsyncIterator[bytes]:
        async def frames() -> AsyncIterator[bytes]:
            yield b"data: 1\n\n"
            await release.wait()

        return frames()

    exchange = Exchange(GOOD)
    first = asyncio.create_task(exchange.run(serving, PLAIN, stream))
    await exchange.until(lambda: bool(exchange.frames))
    assert (await Exchange(GOOD).run(serving, PLAIN, answer)).status == 503
    release.set()
    await first
    assert (await Exchange(GOOD).run(serving, PLAIN, answer)).status == 200


async def test_work_is_charged_to_the_request_that_brings_it_and_given_back_with_its_end():
    serving = server(DECLARED, max_pending_tokens_per_caller=50)
    seen: list[int] = []

    class Inner:
        async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Any:
            seen.append(serving._limiter.tokens)

    dispatcher = Admitting(Inner())

    async def handler(context: Any, body: Any) -> Reply:
        for _ in range(body.count):
            await dispatcher.submit(generate("x" * 40), Route(), Timeouts(1.0))
        return Reply("done")

    two = b'{"model": "m", "count": 2}'
    assert (await Exchange(two).run(serving, DECLARED, handler)).status == 200
    assert seen == [19, 38]
    assert (await Exchange(b'{"model": "m", "count": 3}').run(serving, DECLARED, handler)).status == 429
    assert serving._limiter.tokens == 0
    assert (await Exchange(two).run(serving, DECLARED, handler)).status == 200


async def test_a_gateway_with_as_much_work_as_it_takes_says_when_to_come_back():
    serving = server(DECLARED, max_pending_tokens=50)
    release = asyncio.Event()

    class Inner:
        async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Any:
            await release.wait()

    async def handler(context: Any, body: Any) -> Reply:
        await Admitting(Inner()).submit(generate("x" * 120), Route(), Timeouts(1.0))
        return Reply("done")

    first = asyncio.create_task(Exchange(GOOD, bearer("a")).run(serving, DECLARED, handler))
    await asyncio.sleep(0)
    full = await Exchange(GOOD, bearer("b")).run(serving, DECLARED, handler)
    assert full.status == 503
    assert (full.headers["retry-after"], full.headers["retry-after-ms"]) == ("5", "5000")
    assert full.json["error"]["code"] == "transport_failure"
    release.set()
    assert (await first).status == 200


async def test_without_limits_nothing_is_refused():
    serving = server(PLAIN)
    for _ in range(300):
        assert (await Exchange(GOOD).run(serving, PLAIN, answer)).status == 200

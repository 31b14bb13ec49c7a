"""What the bus adds to a request, and what a second worker brings.

    python bench/cluster.py [--requests 3000] [--nodes 1 3]

First: a small request by way of gateway, JetStream, worker process and back, against the same engine called in this
process; one at a time. With several nodes the queue is kept by all of them. Second: requests a second of one worker
and of two whose engine sleeps, so that the cores of this machine do not decide.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import uvloop  # noqa: E402

from engines.bus.server import EmbeddedServer  # noqa: E402
from engines.bus.settings import BusSettings  # noqa: E402
from engines.catalog import Catalog  # noqa: E402
from engines.cluster import Cluster  # noqa: E402
from engines.protocol.cluster import Route, Timeouts  # noqa: E402
from engines.protocol.events import AnyEvent, Completed  # noqa: E402
from engines.protocol.work import GenerateWork, Sampling, Work  # noqa: E402
from engines.worker.reply import AttemptReply  # noqa: E402
from tests.bus.fake_worker import ScriptedEngine  # noqa: E402
from tests.cluster.testbed import Testbed  # noqa: E402

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
Once = Callable[[Work], Awaitable[None]]
SLEEP_S = 0.2
PLACES = 16
"""Requests that a worker of the second part takes at a time."""


def request(number: str, prompt: str) -> GenerateWork:
    return GenerateWork(request_id=number, model=MODEL, prompt=prompt, sampling=Sampling(max_tokens=8), stream=True)


def in_process() -> Once:
    """A function that calls the engine adapter directly, to the last event."""
    catalog = Catalog.from_env({})
    found = catalog.resolve(MODEL)
    engine = ScriptedEngine(found.model, found.profile)

    async def once(work: Work) -> None:
        events: list[AnyEvent] = []
        reply = AttemptReply(work, "a", "here", lambda _, event: events.append(event), lambda: None)
        await engine.run(work, reply)
        assert isinstance(events[-1], Completed)

    return once


def over_the_bus(cluster: Cluster) -> Once:
    """A function that sends work to a worker and reads its answer."""

    async def once(work: Work) -> None:
        answer = await cluster.dispatcher.submit(work, Route(), Timeouts(60.0))
        events = [event async for event in answer]
        assert isinstance(events[-1], Completed), events[-1]

    return once


async def times(once: Once, requests: int, name: str, prompt: str = "echo:1") -> list[float]:
    """Milliseconds of each of ``requests`` requests, one after another."""
    taken = []
    for number in range(requests):
        work = request(f"{name}-{number}", prompt)
        started = time.perf_counter()
        await once(work)
        taken.append((time.perf_counter() - started) * 1000.0)
    return taken


async def rate(once: Once, requests: int, callers: int, name: str) -> float:
    """Requests a second with ``callers`` at once."""
    numbers = iter(range(requests))

    async def caller() -> None:
        for number in numbers:
            await once(request(f"{name}-{number}", f"block:{SLEEP_S}"))

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return requests / (time.perf_counter() - started)


@asynccontextmanager
async def workers(bus: BusSettings, count: int, *arguments: str) -> AsyncIterator[Cluster]:
    """A gateway in this process and ``count`` worker processes."""
    command = (sys.executable, "-m", "tests.bus.fake_worker", "--models", MODEL, *arguments)
    environment = {**os.environ, **bus.to_env(), "SIE_LOG_LEVEL": "WARNING"}
    processes = [await asyncio.create_subprocess_exec(*command, env=environment, cwd=ROOT) for _ in range(count)]
    cluster = Cluster(Catalog.from_env({}), bus, environ={})
    await cluster.start()
    try:
        while len([w for w in cluster.dispatcher.workers() if w.healthy and w.models]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await times(over_the_bus(cluster), 300, "warm")
        yield cluster
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        await asyncio.gather(*(process.wait() for process in processes))
        await cluster.stop()


@asynccontextmanager
async def bus_of(nodes: int) -> AsyncIterator[BusSettings]:
    """A bus of one node, as a single machine has it, or of several that keep each message."""
    if nodes == 1:
        server = EmbeddedServer()
        try:
            yield await server.start(BusSettings())
        finally:
            await server.stop()
        return
    with tempfile.TemporaryDirectory() as directory:
        bed = Testbed(Path(directory), nodes=nodes, gateways=0, workers=0, settings={})
        try:
            await bed.start()
            yield BusSettings(url=bed.direct, replicas=nodes)
        finally:
            await bed.stop()


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def row(name: str, taken: Sequence[float], base: Sequence[float]) -> str:
    p50, p99 = quantile(taken, 0.5), quantile(taken, 0.99)
    added50, added99 = p50 - quantile(base, 0.5), p99 - quantile(base, 0.99)
    return f"{name:<28} {p50:>8.3f} {p99:>8.3f} {added50:>9.3f} {added99:>9.3f}"


async def main(requests: int, nodes: Sequence[int]) -> None:
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    base = await times(in_process(), requests, "direct")
    print(f"{'one-token stream, ms':<28} {'p50':>8} {'p99':>8} {'added p50':>9} {'added p99':>9}")
    print(row("engine adapter in process", base, base))
    for count in nodes:
        async with bus_of(count) as bus, workers(bus, 1) as cluster:
            taken = await times(over_the_bus(cluster), requests, f"bus{count}")
            print(row(f"over NATS, {count} node{'s' * (count > 1)}", taken, base))
    rates = []
    for count in (1, 2):
        async with bus_of(1) as bus, workers(bus, count, "--max-inflight", str(PLACES)) as cluster:
            rates.append(await rate(over_the_bus(cluster), 480 * count, 4 * PLACES, f"rate{count}"))
    print(f"engine that sleeps {SLEEP_S * 1000:.0f} ms, {PLACES} requests a worker at a time:")
    for count, found in enumerate(rates, 1):
        print(f"  {count} worker{'s' * (count > 1)}: {found:.0f} requests/s, {found / rates[0]:.2f} times one worker")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 3])
    given = parser.parse_args()
    uvloop.run(main(given.requests, given.nodes))

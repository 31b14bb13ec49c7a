"""What the way over the bus adds to a request: gateway, JetStream, worker process and back, with an engine that does
nothing.

    python bench/dispatch.py [--requests 5000] [--concurrency 1 16 64] [--tokens 1]

Prints a table: concurrency, requests a second, p50 and p99 in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import uvloop  # noqa: E402

from engines.bus.settings import BusSettings  # noqa: E402
from engines.catalog import Catalog  # noqa: E402
from engines.cluster import Cluster  # noqa: E402
from engines.protocol.cluster import Route, Timeouts  # noqa: E402
from engines.protocol.events import Completed  # noqa: E402
from engines.protocol.work import GenerateWork, Sampling  # noqa: E402

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


async def once(cluster: Cluster, number: int, tokens: int) -> tuple[float, float]:
    """One request; returns its time and the part of it that publishing took, in milliseconds."""
    started = time.perf_counter()
    work = GenerateWork(
        request_id=f"bench-{number}", model=MODEL, prompt=f"echo:{tokens}", sampling=Sampling(max_tokens=8), stream=True
    )
    answer = await cluster.dispatcher.submit(work, Route(), Timeouts(60.0))
    events = [event async for event in answer]
    assert isinstance(events[-1], Completed), events[-1]
    return (time.perf_counter() - started) * 1000.0, answer.publish_ms


async def measure(cluster: Cluster, requests: int, concurrency: int, tokens: int, base: int) -> str:
    times: list[float] = []
    publishes: list[float] = []
    numbers = iter(range(base, base + requests))

    async def client() -> None:
        for number in numbers:
            total, publish = await once(cluster, number, tokens)
            times.append(total)
            publishes.append(publish)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    rate = requests / (time.perf_counter() - started)
    return (
        f"{concurrency:>11} {rate:>10.0f} {_quantile(times, 0.5):>8.2f} {_quantile(times, 0.99):>8.2f}"
        f" {_quantile(publishes, 0.5):>12.2f}"
    )


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def main(requests: int, concurrencies: Sequence[int], tokens: int) -> None:
    command = [sys.executable, "-m", "tests.bus.fake_worker"]
    environ = {"SIE_PRELOAD_MODELS": ""}
    cluster = Cluster(Catalog.from_env({}), BusSettings(), environ=environ, worker_command=command)
    await cluster.start()
    try:
        await measure(cluster, 200, 4, tokens, 0)
        print(f"{'concurrency':>11} {'requests/s':>10} {'p50 ms':>8} {'p99 ms':>8} {'publish p50':>12}")
        for index, concurrency in enumerate(concurrencies, 1):
            print(await measure(cluster, requests, concurrency, tokens, index * 10_000_000))
    finally:
        await cluster.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--tokens", type=int, default=1)
    given = parser.parse_args()
    uvloop.run(main(given.requests, given.concurrency, given.tokens))

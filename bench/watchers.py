"""What watchers of the cluster cost: the latency of small requests with and without 200 of them on the WebSocket.

    python bench/watchers.py [--watchers 200] [--seconds 20] [--rounds 3]

One server, and one round after the other: some seconds without watchers, as many with them (in turn first and second),
so that a change of the machine meets both alike; by default that is a minute of watching. The watchers are another
process, speak as the SIE SDK does, and stay the whole of their seconds. Prints a table in milliseconds with the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp
from compare import EMBEDDING_MODEL, ours, wait_for_model
from websockets.asyncio.client import connect

PATH = "/ws/cluster-status"
PAUSE_S = 0.002
"""Between two requests: the server is used, not saturated."""
SHARES = (0.5, 0.95, 0.99)

Times = dict[str, list[float]]
"""Milliseconds by kind of request."""


async def watch(url: str, count: int) -> None:
    """Watch with ``count`` connections until interrupted; then print how many frames came."""
    frames = 0

    async def one(number: int) -> None:
        nonlocal frames
        # as the SDK: its header is there even where the server asks for none
        headers = {"authorization": f"Bearer watcher-{number}"}
        async with connect(f"ws{url.removeprefix('http')}{PATH}", additional_headers=headers) as socket:
            await socket.recv()
            opened.release()
            async for _ in socket:
                frames += 1

    opened = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(one(number)) for number in range(count)]
    for _ in range(count):
        await opened.acquire()
    print("watching", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    print(frames, flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def watching(url: str, count: int) -> Iterator[None]:
    """``count`` watchers in a process of their own, all connected; tells if they did not get their frames."""
    command = [sys.executable, __file__, "--watch", url, "--watchers", str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != "watching":
            raise SystemExit("the watchers did not come up")
        began = time.monotonic()
        yield
        process.send_signal(signal.SIGTERM)
        frames, seconds = int(process.stdout.readline()), time.monotonic() - began
        print(f"{count} watchers: {frames / count / seconds:.2f} frames a second each", file=sys.stderr, flush=True)
    finally:
        process.terminate()
        process.wait(30)


async def measure(url: str, seconds: float) -> Times:
    """One client that asks in turn for the list of models (the gateway alone) and for an embedding (over the bus)."""
    body = {"model": EMBEDDING_MODEL, "input": "A short text."}
    times: Times = {"GET /v1/models": [], "POST /v1/embeddings": []}
    async with aiohttp.ClientSession() as http:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for kind, taken in times.items():
                method, path = kind.split()
                began = time.perf_counter()
                async with http.request(method, url + path, json=body if method == "POST" else None) as response:
                    assert response.status == 200, (response.status, await response.read())
                    await response.read()
                taken.append((time.perf_counter() - began) * 1e3)
                await asyncio.sleep(PAUSE_S)
    return times


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def table(without: Times, with_them: Times, count: int) -> str:
    lines = [
        "| request | watchers | requests | p50 ms | p95 ms | p99 ms | longest |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for kind in without:
        figures = []
        for number, values in ((0, without[kind]), (count, with_them[kind])):
            figures.append([*(quantile(values, share) for share in SHARES), max(values)])
            shown = " | ".join(f"{value:.2f}" for value in figures[-1])
            lines.append(f"| {kind} | {number} | {len(values)} | {shown} |")
        ratios = " | ".join(f"{after / before:.2f}" for before, after in zip(*figures, strict=True))
        lines.append(f"| {kind} | ratio | | {ratios} |")
    return "\n".join(lines)


def main(watchers: int, seconds: float, rounds: int) -> None:
    os.environ["SIE_PRELOAD_MODELS"] = EMBEDDING_MODEL
    server = ours("/v1/embeddings", EMBEDDING_MODEL)
    totals: tuple[Times, Times] = ({}, {})
    with tempfile.TemporaryDirectory(prefix="oasgate-bench-") as name, server.running(Path(name)):
        wait_for_model(server, "embed_load.py")
        url = server.url.removesuffix("/v1/embeddings")
        asyncio.run(measure(url, 3.0))
        for number in range(rounds):
            for watched in (False, True) if number % 2 == 0 else (True, False):
                with watching(url, watchers) if watched else contextlib.nullcontext():
                    times = asyncio.run(measure(url, seconds))
                for kind, values in times.items():
                    totals[watched].setdefault(kind, []).extend(values)
    print(table(*totals, watchers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watchers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--watch", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.watch:
        asyncio.run(watch(given.watch, given.watchers))
    else:
        main(given.watchers, given.seconds, given.rounds)

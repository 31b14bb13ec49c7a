"""What a request costs, measured on this machine, and how large a cluster has to be for a rate of requests.

    python bench/simulate.py measure [--requests 1500] [--out costs.json]
    python bench/simulate.py plan [--costs costs.json] [--rates 1000 100000 10000000]

``measure`` runs a real cluster (gateway, three NATS nodes with three copies of each queue, worker) whose engine answers
at once, sends it one kind of request after another, and reads the processor time of each process: what it prints are
CPU-milliseconds a request, and bytes on the bus. ``plan`` does the arithmetic of docs/scaling.md with them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import aiohttp  # noqa: E402
import msgspec  # noqa: E402
import nats  # noqa: E402
import psutil  # noqa: E402
import uvloop  # noqa: E402

from engines.bus import subjects, wire  # noqa: E402
from engines.protocol.cluster import ModelStatus, WorkerStatus  # noqa: E402
from tests.cluster.answers import ENCODER, RANKER, TALKER, question  # noqa: E402
from tests.cluster.testbed import Testbed, get  # noqa: E402

CALLERS = 8
TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind. " * 4
WORDS = 64
MIX = {"stream of 64 tokens": 0.5, "chat of 64 tokens": 0.1, "embedding": 0.3, "rerank of 10": 0.1}


class Cost(msgspec.Struct, frozen=True):
    """Of one request of a kind: CPU-milliseconds by process, bytes into and out of the nodes of the bus."""

    gateway_ms: float
    bus_ms: float
    worker_ms: float
    bus_in: float
    bus_out: float


class Costs(msgspec.Struct):
    """What was measured. ``beat_ms``: CPU-milliseconds of a gateway for one heart-beat of a worker."""

    kinds: dict[str, Cost]
    beat_ms: float
    idle_worker_ms: float
    machine: str


class Plan(msgspec.Struct, frozen=True):
    """Assumptions of the plan. ``mix``: shares of the kinds. ``busy``: share of a core that is used at the peak.

    ``gpu_streams`` and ``gpu_texts``: generations, and texts encoded or scored, that one GPU does in a second; they
    depend on the model, and were not measured here. ``queue_rate``: requests a second through one queue, whose leader
    is one node; assumed from the cost of the bus. ``cell_nodes``: most nodes of one NATS cluster, in which each knows
    every other. ``beat_share``: what heart-beats may take of a gateway's core.
    """

    mix: dict[str, float] = msgspec.field(default_factory=lambda: dict(MIX))
    busy: float = 0.5
    node_cores: int = 8
    gpu_streams: float = 40.0
    gpu_texts: float = 2000.0
    queue_rate: float = 4000.0
    cell_nodes: int = 9
    beat_share: float = 0.05


def bodies() -> dict[str, tuple[str, dict[str, Any]]]:
    """Path and body by kind; the engine answers each without a pause."""
    text = question("bench", WORDS, 0)
    chat = {"model": TALKER, "messages": [{"role": "user", "content": f"{text} {TEXT}"}]}
    short = {"model": TALKER, "messages": [{"role": "user", "content": question("bench", 1, 0)}]}
    return {
        "chat of 1 token": ("/v1/chat/completions", short),
        "chat of 64 tokens": ("/v1/chat/completions", chat),
        "stream of 64 tokens": ("/v1/chat/completions", {**chat, "stream": True}),
        "embedding": ("/v1/embeddings", {"model": ENCODER, "input": f"{text} {TEXT}"}),
        "rerank of 10": ("/v2/rerank", {"model": RANKER, "query": f"{text} {TEXT}", "documents": [TEXT] * 10}),
    }


def cpu(processes: Sequence[psutil.Process]) -> float:
    """Processor time so far, in milliseconds."""
    times = [process.cpu_times() for process in processes]
    return sum(one.user + one.system for one in times) * 1000.0


async def send(url: str, path: str, body: dict[str, Any], count: int) -> None:
    """Send ``count`` equal requests, ``CALLERS`` at a time."""
    numbers = iter(range(count))
    async with aiohttp.ClientSession(url) as session:

        async def caller() -> None:
            for _ in numbers:
                async with session.post(path, json=body) as response:
                    await response.read()
                    assert response.status == 200, await response.text()

        await asyncio.gather(*(caller() for _ in range(CALLERS)))


class Meter:
    """The processes of a cluster and what they have used."""

    def __init__(self, bed: Testbed) -> None:
        self._bed = bed
        self.gateway, self.bus, self.worker = (
            [process.itself for process in group] for group in (bed.gateways, bed.nodes, bed.workers)
        )

    def read(self) -> tuple[float, ...]:
        traffic = [get(f"http://127.0.0.1:{port}/varz") for port in self._bed.monitors]
        moved = (sum(node[name] for node in traffic) for name in ("in_bytes", "out_bytes"))
        return (cpu(self.gateway), cpu(self.bus), cpu(self.worker), *moved)

    async def over(self, action: Callable[[], Awaitable[None]]) -> tuple[tuple[float, ...], float]:
        """What an action used, and how many seconds it took."""
        before, started = self.read(), time.perf_counter()
        await action()
        taken = time.perf_counter() - started
        return tuple(after - then for after, then in zip(self.read(), before, strict=True)), taken


async def measure(requests: int) -> Costs:
    with tempfile.TemporaryDirectory() as directory:
        bed = Testbed(Path(directory), gateways=1, workers=1, settings={"SIE_LOG_LEVEL": "WARNING"}, linked=False)
        try:
            await bed.start()
            meter = Meter(bed)
            for path, body in bodies().values():
                await send(bed.urls()[0], path, body, 200)
            idle, seconds = await meter.over(lambda: asyncio.sleep(10.0))
            rest = [used / seconds for used in idle]
            kinds = {}
            for name, (path, body) in bodies().items():
                used, taken = await meter.over(lambda path=path, body=body: send(bed.urls()[0], path, body, requests))
                parts = [max(0.0, one - still * taken) / requests for one, still in zip(used, rest, strict=True)]
                kinds[name] = Cost(*(round(part, 4) for part in parts))
                print(f"{name:<22} {requests / taken:7.0f}/s  {kinds[name]}", file=sys.stderr)
            beat = await beats(bed, meter, rest[0])
        finally:
            await bed.stop()
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    return Costs(kinds=kinds, beat_ms=round(beat, 4), idle_worker_ms=round(rest[2], 3), machine=machine)


async def beats(bed: Testbed, meter: Meter, idle: float, count: int = 20_000, workers: int = 200) -> float:
    """Processor time of a gateway for one heart-beat: ``count`` of them from ``workers`` workers that are not there."""
    client = await nats.connect(bed.direct.split(",")[0])
    models = [ModelStatus(name=f"model-{number}", state="loaded") for number in range(3)]
    made = [
        wire.encode(WorkerStatus(name=f"w{number}", pool="elsewhere", models=models, healthy=True, requests=number))
        for number in range(workers)
    ]

    async def publish() -> None:
        for number in range(count):
            await client.publish(f"{subjects.HEALTH}.w{number % workers}", made[number % workers])
            if number % 100 == 99:
                await client.flush()
                await asyncio.sleep(0.01)

    used, taken = await meter.over(publish)
    await client.close()
    return (used[0] - idle * taken) / count


def plan(costs: Costs, given: Plan, rate: float) -> dict[str, str]:
    """The arithmetic for a rate of requests a second, by what it is about."""

    def mixed(field: str) -> float:
        return sum(share * getattr(costs.kinds[kind], field) for kind, share in given.mix.items())

    gateway_ms, bus_ms, worker_ms = mixed("gateway_ms"), mixed("bus_ms"), mixed("worker_ms")
    gateways = math.ceil(rate * gateway_ms / 1000.0 / given.busy)
    bus_cores = rate * bus_ms / 1000.0 / given.busy
    nodes = max(3, math.ceil(bus_cores / given.node_cores))
    moved = mixed("bus_in") + mixed("bus_out")
    generations = rate * sum(share for kind, share in given.mix.items() if "token" in kind)
    texts = rate * (given.mix["embedding"] + 11 * given.mix["rerank of 10"])
    gpus = math.ceil(generations / given.gpu_streams) + math.ceil(texts / given.gpu_texts)
    beats = gpus * costs.beat_ms / 1000.0
    most = int(given.beat_share * 1000.0 / costs.beat_ms)
    queues = math.ceil(rate / given.queue_rate)
    cells = max(math.ceil(nodes / given.cell_nodes), math.ceil(gpus / most))
    cell_nodes = max(3, math.ceil(bus_cores / cells / given.node_cores))
    each = f"{math.ceil(gateways / cells)} gateways, {cell_nodes} nodes, {math.ceil(gpus / cells):,} GPUs"
    return {
        "gateways": f"{gateway_ms:.3f} ms / {given.busy} busy = {gateways:,} processes of one core",
        "bus": f"{bus_ms:.3f} ms / {given.busy} busy = {bus_cores:,.1f} cores = {nodes:,} nodes of {given.node_cores}",
        "network": f"{moved:,.0f} bytes = {rate * moved * 8 / 1e9:,.2f} Gbit/s in and out of the nodes",
        "workers": f"{worker_ms:.3f} ms = {rate * worker_ms / 1000.0:,.1f} cores beside the engines",
        "GPUs": f"{generations:,.0f} / {given.gpu_streams:g} + {texts:,.0f} texts / {given.gpu_texts:g} = {gpus:,}",
        "heart-beats": f"{gpus:,} a second x {costs.beat_ms:.3f} ms = {beats:.1%} of one core, in every gateway",
        "queues": f"{rate:,.0f} / {given.queue_rate:,.0f} = {queues:,} pools or more",
        "cells": f"{nodes:,} nodes / {given.cell_nodes} or {gpus:,} workers / {most:,} = {cells:,}",
        "a cell": f"{rate / cells:,.0f} requests/s: {each}, {math.ceil(queues / cells)} pools",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("--requests", type=int, default=1500)
    measuring.add_argument("--out", type=Path, default=Path(__file__).with_name("costs.json"))
    planning = verbs.add_parser("plan")
    planning.add_argument("--costs", type=Path, default=Path(__file__).with_name("costs.json"))
    planning.add_argument("--rates", type=float, nargs="+", default=[1e3, 1e5, 1e7])
    planning.add_argument("--gpu-streams", type=float, default=Plan().gpu_streams, help="generations/s of one GPU")
    planning.add_argument("--gpu-texts", type=float, default=Plan().gpu_texts, help="texts/s of one GPU")
    given = parser.parse_args()
    if given.verb == "measure":
        costs = uvloop.run(measure(given.requests))
        given.out.write_text(json.dumps(msgspec.to_builtins(costs), indent=2) + "\n")
        return
    costs = msgspec.json.decode(given.costs.read_bytes(), type=Costs)
    wanted = Plan(gpu_streams=given.gpu_streams, gpu_texts=given.gpu_texts)
    for rate in given.rates:
        print(f"\n{rate:,.0f} requests a second")
        for name, line in plan(costs, wanted, rate).items():
            print(f"  {name:<12} {line}")


if __name__ == "__main__":
    main()

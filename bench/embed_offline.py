"""Embeddings over HTTP beside sentence-transformers' own loop, which has all texts at once and no server around it.

    python bench/embed_offline.py [--requests 60] [--batch 16] [--conc 32] [--rounds 3]

In turn, several rounds in one run: the loop in bfloat16 in this process, and the load of ``embed_load.py`` with the
same texts against this server. Prints texts a second and the ratio, medians of the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from compare import EMBEDDING_MODEL, load, ours, wait_for_model
from embed_engine import SOURCE, texts
from sentence_transformers import SentenceTransformer

from engines import embedded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--conc", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    every = [text for seed in range(chosen.requests) for text in texts(chosen.batch, seed)]
    library = SentenceTransformer(str(embedded.prepare(SOURCE)), device="cpu", model_kwargs={"dtype": torch.bfloat16})
    options = ["--conc", str(chosen.conc), "--requests", str(chosen.requests), "--batch", str(chosen.batch)]
    server = ours("/v1/embeddings", EMBEDDING_MODEL, SIE_PRELOAD_MODELS=EMBEDDING_MODEL)
    loops, loads = list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="oasgate-bench-") as folder, server.running(Path(folder)):
        wait_for_model(server, "embed_load.py")
        library.encode(every[:64], show_progress_bar=False)
        for _ in range(chosen.rounds):
            began = time.perf_counter()
            library.encode(every, show_progress_bar=False)
            loops.append(len(every) / (time.perf_counter() - began))
            loads.append(load("embed_load.py", server, *options)[chosen.conc]["texts/s"])
    ratio = statistics.median(rate / loop for rate, loop in zip(loads, loops, strict=True))
    print(f"sentence-transformers' loop, bfloat16: {statistics.median(loops):.1f} texts/s")
    print(f"over HTTP, {chosen.conc} at a time: {statistics.median(loads):.1f} texts/s, {ratio:.2f} times the loop")


if __name__ == "__main__":
    main()

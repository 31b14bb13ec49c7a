"""One request to one model, from the command line: a private bus, a worker, an answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import click
import msgspec
import numpy as np

from engines.cluster import Cluster
from engines.protocol.catalog import Resolved
from engines.protocol.cluster import Answer, DispatchError, Route, Timeouts
from engines.protocol.events import Completed, Delta, EncodeOutput, ExtractOutput, Failed, Output, ScoreOutput
from engines.protocol.work import EncodeWork, ExtractWork, GenerateWork, Item, Sampling, ScoreWork, Work

LIMIT = 600.0
"""Seconds that loading and answering may take."""
SHOWN = 8
STILL_EVERY = 10.0


def work_for(found: Resolved, text: str, max_tokens: int, labels: list[str], request_id: str) -> Work | None:
    """The request that fits the model's first task; ``None`` where a text is no input of it.

    A text for a scoring model is ``query | document``.
    """
    entry = found.model
    common: dict[str, Any] = {
        "request_id": request_id,
        "model": entry.name,
        "profile": found.profile.name,
        "bundle": found.bundle,
    }
    if "generate" in entry.tasks:
        messages = [{"role": "user", "content": text}]
        # a small model's likeliest answer says more of it than one drawn at random
        sampling = Sampling(max_tokens=max_tokens, temperature=0.0)
        return GenerateWork(**common, messages=messages, stream=True, sampling=sampling)
    if "encode" in entry.tasks:
        kind: Any = next(iter(entry.dims))
        return EncodeWork(**common, items=[Item(text=text)], output_types=(kind,))
    if "score" in entry.tasks:
        query, _, document = (part.strip() for part in text.partition("|"))
        return ScoreWork(**common, query=Item(text=query), items=[Item(text=document or query)])
    if "extract" in entry.tasks:
        return ExtractWork(**common, items=[Item(text=text)], labels=labels or None)
    return None


async def attempt(found: Resolved, work: Work) -> int:
    """Run the request on a worker of its own, print the answer; return the exit status."""
    _quieten()
    environ = {**os.environ, "SIE_PRELOAD_MODELS": ""}
    # whoever tries a model wants it tried here, and not on a bus that the environment names
    environ.pop("SIE_NATS_URL", None)
    cluster = Cluster.from_env(environ)
    click.echo(f"{found.model.name}: starting a worker and loading the model ...", err=True)
    started = time.monotonic()
    await cluster.start()
    try:
        async with _still_loading(started) as loaded:
            answer = await cluster.dispatcher.submit(work, Route(), Timeouts(LIMIT))
            try:
                return await _show(answer, started, loaded)
            finally:
                await answer.aclose()
    except DispatchError as error:
        click.echo(error.message, err=True)
        return 1
    finally:
        # that the worker goes is no news here
        logging.getLogger("sie").setLevel(logging.ERROR)
        await cluster.stop()


def _quieten() -> None:
    """The worker tells its faults and nothing else, unless the operator wants it otherwise."""
    os.environ.setdefault("SIE_LOG_LEVEL", "WARNING")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")


@contextlib.asynccontextmanager
async def _still_loading(started: float) -> AsyncIterator[asyncio.Event]:
    """Tell now and then that nothing hangs, until the event is set."""
    loaded = asyncio.Event()

    async def tell() -> None:
        while not loaded.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(loaded.wait(), STILL_EVERY)
                return
            click.echo(f"still loading after {time.monotonic() - started:.0f} s", err=True)

    telling = asyncio.create_task(tell())
    try:
        yield loaded
    finally:
        telling.cancel()


async def _show(answer: Answer, started: float, loaded: asyncio.Event) -> int:
    finish = None
    async for event in answer:
        if isinstance(event, Failed):
            click.echo(f"{event.code}: {event.message}", err=True)
            return 1
        if isinstance(event, Delta):
            loaded.set()
            click.echo(event.text, nl=False)
            finish = event.finish_reason or finish
        elif isinstance(event, Completed):
            click.echo(describe(event.output) if event.output is not None else "")
            click.echo(_summary(event, finish, time.monotonic() - started), err=True)
            return 0
    return 1


def _summary(event: Completed, finish: str | None, seconds: float) -> str:
    usage = event.usage
    out = f", {usage.completion_tokens} out" if finish else ""
    cut = " (cut by --max-tokens)" if finish == "length" else ""
    inference = event.timing.inference_ms / 1e3
    return f"{usage.prompt_tokens} tokens in{out}{cut}; inference {inference:.2f} s, {seconds:.1f} s with the start"


def describe(output: Output) -> str:
    """An answer in a few lines."""
    if isinstance(output, EncodeOutput):
        if output.dense is not None:
            row = np.frombuffer(output.dense.data, output.dense.dtype).reshape(output.dense.shape)[0]
            return f"dense, {row.size} dimensions, norm {np.linalg.norm(row):.4f}: {_numbers(row)}"
        for sparse in output.sparse or ():
            if sparse is not None:
                values = np.frombuffer(sparse.values.data, sparse.values.dtype)
                return f"sparse, {values.size} of {sparse.dims} dimensions: {_numbers(np.sort(values)[::-1])}"
        for matrix in output.multivector or ():
            if matrix is not None:
                return f"multivector, {matrix.shape[0]} tokens by {matrix.shape[1]} dimensions"
    if isinstance(output, ScoreOutput):
        return f"{output.kind}: {output.scores[0]:.6f}"
    if isinstance(output, ExtractOutput):
        return msgspec.json.encode(output.items[0]).decode()
    return str(output)


def _numbers(row: Any) -> str:
    more = " ..." if row.size > SHOWN else ""
    return " ".join(f"{value:.4f}" for value in row[:SHOWN].astype(np.float64)) + more

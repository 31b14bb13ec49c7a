"""One request to one model, from the command line: a private bus, a worker, an answer."""

from __future__ import annotations

import os
import time
from typing import Any

import click
import numpy as np

from engines.cluster import Cluster
from engines.protocol.catalog import Resolved
from engines.protocol.cluster import Answer, DispatchError, Route, Timeouts
from engines.protocol.events import Completed, Delta, EncodeOutput, ExtractOutput, Failed, Output, ScoreOutput
from engines.protocol.work import EncodeWork, ExtractWork, GenerateWork, Item, Sampling, ScoreWork, Work

LIMIT = 600.0
"""Seconds that loading and answering may take."""
SHOWN = 8


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
        return GenerateWork(**common, messages=messages, stream=True, sampling=Sampling(max_tokens=max_tokens))
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
    environ = {**os.environ, "SIE_PRELOAD_MODELS": ""}
    # whoever tries a model wants it tried here, and not on a bus that the environment names
    environ.pop("SIE_NATS_URL", None)
    cluster = Cluster.from_env(environ)
    click.echo(f"{found.model.name}: starting a worker and loading the model ...", err=True)
    started = time.monotonic()
    await cluster.start()
    try:
        answer = await cluster.dispatcher.submit(work, Route(), Timeouts(LIMIT))
        try:
            return await _show(answer, started)
        finally:
            await answer.aclose()
    except DispatchError as error:
        click.echo(error.message, err=True)
        return 1
    finally:
        await cluster.stop()


async def _show(answer: Answer, started: float) -> int:
    async for event in answer:
        if isinstance(event, Failed):
            click.echo(f"{event.code}: {event.message}", err=True)
            return 1
        if isinstance(event, Delta):
            click.echo(event.text, nl=False)
        elif isinstance(event, Completed):
            click.echo(describe(event.output) if event.output is not None else "")
            usage, seconds = event.usage, time.monotonic() - started
            click.echo(f"{usage.prompt_tokens} tokens in, {usage.completion_tokens} out, {seconds:.1f} s", err=True)
            return 0
    return 1


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
        return str(output.items[0])
    return str(output)


def _numbers(row: Any) -> str:
    more = " ..." if row.size > SHOWN else ""
    return " ".join(f"{value:.4f}" for value in row[:SHOWN].astype(np.float64)) + more

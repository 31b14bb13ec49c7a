"""A catalog, a dispatcher and answers, scripted: what the handlers of the retrieval surface meet in tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np

from engines.protocol.catalog import ModelEntry, Profile
from engines.protocol.cluster import ModelStatus, Route, Timeouts, WorkerStatus
from engines.protocol.events import (
    Admitted,
    AnyEvent,
    Completed,
    EncodeOutput,
    ExtractOutput,
    Failed,
    Output,
    ScoreOutput,
    Segment,
    SparseVector,
    Tensor,
    Timing,
    TranscribeOutput,
    Usage,
    Word,
)
from engines.protocol.work import EncodeWork, ExtractWork, Item, ScoreWork, TranscribeWork, Work
from tests.handlers.scripted import ScriptedCatalog

Script = Callable[[Any], Output | Failed | Completed]


def profile(name: str = "default", **runtime: Any) -> Profile:
    return Profile(
        name=name,
        engine="sentence_transformer",
        adapter_path="a:b",
        source="somewhere",
        runtime=runtime,
        lora_paths={"legal": "somewhere/legal"},
    )


def model(
    name: str, *tasks: Any, inputs: tuple[str, ...] = ("text",), dims: dict[str, int] | None = None, **more: Any
) -> ModelEntry:
    profiles = more.pop("profiles", None) or {"default": profile(), "small": profile("small", output_dtype="int8")}
    return ModelEntry(
        name=name, tasks=tasks, inputs=inputs, dims=dims or {}, profiles=profiles, bundles=("default", "other"), **more
    )


MODELS = (
    model("org/embed", "encode", "score", dims={"dense": 4}),
    model(
        "org/all",
        "encode",
        "score",
        "extract",
        inputs=("text", "image", "document"),
        dims={"dense": 4, "sparse": 100, "multivector": 3},
    ),
    model("org/sparse", "encode", dims={"sparse": 100}),
    model("org/rerank", "score"),
    model("org/extract", "extract"),
    model("org/speech", "transcribe", inputs=("audio",)),
    model("org/chat", "generate"),
)


class Catalog(ScriptedCatalog):
    """The models above."""

    def __init__(self) -> None:
        super().__init__(MODELS)


class Cluster:
    """A cluster with a worker in each of two pools."""

    connected = True

    def workers(self) -> Sequence[WorkerStatus]:
        return (WorkerStatus(name="worker-0"), WorkerStatus(name="worker-1", pool="fast"))

    def model_status(self, name: str) -> ModelStatus:
        return ModelStatus(name=name, state="loaded")


class Answer:
    """Events from a list, one attempt."""

    publish_ms = 0.5

    def __init__(self, events: Sequence[AnyEvent], *, stuck: bool = False) -> None:
        self.events = events
        self.stuck = stuck
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        if self.stuck:
            await asyncio.Event().wait()
        for event in self.events:
            yield event

    async def aclose(self) -> None:
        self.closed = True


class Dispatcher:
    """Answers each work item by ``script`` and remembers it."""

    def __init__(self, script: Script | None = None, *, error: Exception | None = None) -> None:
        self.script = script or honest
        self.error = error
        self.cut = False
        self.stuck = False
        self.submitted = asyncio.Event()
        self.works: list[Any] = []
        self.routes: list[Route] = []
        self.timeouts: list[Timeouts] = []
        self.answers: list[Answer] = []

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Answer:
        if self.error is not None:
            raise self.error
        self.works.append(work)
        self.routes.append(route)
        self.timeouts.append(timeouts)
        said = self.script(work)
        if not isinstance(said, Failed | Completed):
            said = completed(said)
        said.request_id = work.request_id
        admitted = Admitted(request_id=work.request_id, worker="worker-0")
        self.answers.append(Answer([admitted] if self.cut else [admitted, said], stuck=self.stuck))
        self.submitted.set()
        return self.answers[-1]


def completed(output: Output | None, **usage: int) -> Completed:
    return Completed(
        request_id="",
        worker="worker-0",
        usage=Usage(**(usage or {"prompt_tokens": 7})),
        timing=Timing(queue_ms=1.25, tokenization_ms=0.5, inference_ms=3.0, total_ms=5.0),
        output=output,
        bundle_config_hash="ab" * 32,
        execution_identity="cd" * 32,
    )


def tensor(values: Any, dtype: str = "<f4") -> Tensor:
    array = np.ascontiguousarray(values, dtype=dtype)
    return Tensor(dtype=array.dtype.str, shape=array.shape, data=array.tobytes())


def sparse(text: str) -> SparseVector:
    return SparseVector(dims=100, indices=tensor([1, len(text)], "<i4"), values=tensor([0.5, 1.5]))


def honest(work: Work) -> Output:
    """Results that betray any mix-up of order: they are made of the length of each text."""
    match work:
        case EncodeWork():
            sizes = [len(item.text or "") for item in work.items]
            return EncodeOutput(
                dense=tensor([[size, size / 10, -size, 0.1] for size in sizes])
                if "dense" in work.output_types
                else None,
                dense_dims=4,
                sparse=[sparse(item.text or "") for item in work.items] if "sparse" in work.output_types else None,
                multivector=[tensor([[size, 0, 1]] * 2) for size in sizes]
                if "multivector" in work.output_types
                else None,
                token_dims=3,
                output_dtype=work.output_dtype,
            )
        case ScoreWork():
            return ScoreOutput(scores=[float(len(item.text or "")) for item in work.items], kind="logit")
        case ExtractWork():
            return ExtractOutput(
                items=[
                    {"entities": [{"text": item.text, "label": "all", "score": 1.0, "start": 0}]} for item in work.items
                ]
            )
        case TranscribeWork():
            return TranscribeOutput(
                text=" Hello world.",
                language="en",
                duration_ms=2500,
                segments=[Segment(0, 0.0, 1.0, " Hello"), Segment(1, 1.0, 2.5, " world.")],
                words=[Word("Hello", 0.0, 1.0), Word("world.", 1.0, 2.5)] if work.word_timestamps else [],
            )
    raise AssertionError(work)


SCORE = ScoreWork(request_id="", model="", query=Item(text="q"), items=[Item(text="a")])

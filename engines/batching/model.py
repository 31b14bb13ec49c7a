"""What the batching engine runs, and within which limits."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Tokenized:
    """One input ready for the forward pass. ``length`` is its width in a batch, in tokens; only inputs of the same
    ``group`` share a batch; ``tokens`` is what it counts in a bill (padding and repeated parts left out)."""

    length: int
    features: Any
    group: Hashable = None
    tokens: int = 0


class Model(Protocol):
    """A model in three stages. Each method runs on a thread of its own stage and may block."""

    padded: bool
    """Whether a batch costs its longest member times its size (true) or the sum of its lengths (false)."""

    def estimate(self, inputs: Sequence[Any]) -> int:
        """A cheap guess of the inputs' tokens, for admission. Runs on the event loop."""
        ...

    def tokenize(self, inputs: Sequence[Any]) -> Sequence[Tokenized]:
        """Tokenise and truncate; one result per input, in order."""
        ...

    def forward(self, batch: Sequence[Any], share: int) -> Any:
        """Run the ``features`` of one batch. ``share`` is how many forward passes may run beside this one,
        itself included; a model that uses several cores divides them by it."""
        ...

    def rows(self, output: Any, count: int) -> Sequence[Any]:
        """The results of the ``count`` members of a batch, in the batch's order."""
        ...

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether a smaller batch may succeed where this one failed; frees what can be freed if so."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """``batch_tokens``: most tokens of one forward pass, padding counted (a longer single input runs alone).
    ``least_batch_tokens``: waiting work is not spread over idle workers in smaller batches than this.
    ``pending_tokens``: with that many tokens admitted and unfinished, new requests are refused.
    ``workers``: forward passes that run side by side."""

    batch_tokens: int = 16384
    least_batch_tokens: int = 256
    pending_tokens: int = 262_144
    workers: int = 1

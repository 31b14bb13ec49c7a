"""From vectors, one row for each text, to what the protocol calls an output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ...protocol.events import EncodeOutput, ItemError, ScoreOutput
from ...protocol.work import EncodeWork
from ..base import WorkError
from .quantize import quantized

T = TypeVar("T")


def dense_output(vectors: Sequence[Any], dims: int, work: EncodeWork) -> EncodeOutput:
    """Vectors (or ``None``) as one (items, dims) tensor."""
    matrix = np.zeros((len(vectors), dims), dtype=np.float32)
    for row, vector in zip(matrix, vectors, strict=True):
        if vector is not None:
            row[:] = vector
    return EncodeOutput(dense=quantized(matrix, work.output_dtype), dense_dims=dims)


def finite(row: Any) -> Any:
    """A model's row for one item (a number, an array or a tuple of them), or the item's error: made integers, numbers
    that are not finite would look right."""
    parts = row if isinstance(row, tuple) else (row,)
    if all(np.isfinite(part).all() for part in parts if isinstance(part, np.ndarray | float)):
        return row
    return ItemError("inference_error", "the model gave a number that is not finite")


def by_item(rows: Iterator[Any], errors: Mapping[int, ItemError], count: int) -> tuple[list[Any], dict[int, ItemError]]:
    """What became of each of ``count`` items: its row or ``None``, and all errors. ``rows`` are those of the items
    that are not in ``errors``; a row may be an error itself, or become one here."""
    every = [errors[index] if index in errors else finite(next(rows)) for index in range(count)]
    failed = {index: row for index, row in enumerate(every) if isinstance(row, ItemError)}
    return [None if index in failed else row for index, row in enumerate(every)], failed


def faultless(parts: list[T | ItemError], items: int) -> list[T]:
    """What stands for each item of a score, and before them for its query, if that is by itself; any can fail it.

    Raises:
        WorkError: one is an ``ItemError``.
    """
    good: list[T] = []
    for index, part in enumerate(parts):
        if isinstance(part, ItemError):
            place = f"items[{index - len(parts) + items}]" if len(parts) - index <= items else "query"
            raise WorkError(part.code, f"{place}: {part.message}", param=place)
        good.append(part)
    return good


def cosines(vectors: Sequence[Any]) -> ScoreOutput:
    """The cosine of the first vector, the query's, with each of the others."""
    matrix = np.stack(vectors).astype(np.float64)
    matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    return ScoreOutput(scores=(matrix[1:] @ matrix[0]).tolist(), kind="similarity")

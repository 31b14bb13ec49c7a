"""Vectors on their way out: from the worker's raw bytes to JSON text or base64, without a Python loop over numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

from engines.protocol.events import Tensor

T = TypeVar("T", bound=np.generic)

# Numbers encoded in one go before the event loop gets a turn: about a millisecond of work.
_SLICE = 32_768


def array(tensor: Tensor) -> NDArray[np.generic]:
    """View a tensor as an array of its dtype and shape; no copy.

    Raises:
        ValueError: the bytes do not fill the shape, or the dtype is unknown.
    """
    try:
        return np.frombuffer(tensor.data, dtype=np.dtype(tensor.dtype)).reshape(tensor.shape)
    except TypeError as error:
        raise ValueError(f"unknown dtype {tensor.dtype!r}") from error


def finite(values: NDArray[T]) -> NDArray[T]:
    """The same array.

    Raises:
        ValueError: a number is not finite.
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("a vector has a number that is not finite")
    return values


def json_numbers(values: NDArray[np.generic]) -> bytes:
    """JSON text of an array of any shape; floats with the fewest digits that read back to the same number.

    Raises:
        ValueError: a number is not finite, which JSON cannot say.
    """
    return _json(finite(values))


async def json_rows(rows: NDArray[np.generic]) -> list[bytes]:
    """JSON text of each row of a (rows, width) array; large arrays in slices, so that the event loop stays responsive.

    Raises:
        ValueError: a number is not finite.
    """
    finite(rows)
    texts: list[bytes] = []
    step = max(1, _SLICE // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        if start:
            await asyncio.sleep(0)
        texts += map(_json, rows[start : start + step])
    return texts


def base64_rows(rows: NDArray[np.generic]) -> list[bytes]:
    """Standard base64 of the little-endian float32 bytes of each row of a (rows, width) array.

    Raises:
        ValueError: a number is not finite.
    """
    finite(rows)
    return [pybase64.b64encode(row) for row in np.ascontiguousarray(rows, dtype="<f4")]


def join(parts: Sequence[bytes]) -> bytes:
    """A JSON array of already encoded parts."""
    return b"[" + b",".join(parts) + b"]"


def _json(values: NDArray[np.generic]) -> bytes:
    native = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    return orjson.dumps(native, option=orjson.OPT_SERIALIZE_NUMPY)

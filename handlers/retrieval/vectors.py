"""Vectors on their way out: from the worker's raw bytes to JSON text or base64, without a Python loop over numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np
import pybase64
from numpy.typing import NDArray

from engines.protocol.events import Tensor

T = TypeVar("T", bound=np.generic)

# Numbers encoded in one go before the event loop gets a turn: about a millisecond of work.
_SLICE = 16_384
_POWERS = 10.0 ** np.arange(23)  # powers of ten that float64 holds exactly
_encode = msgspec.json.Encoder().encode


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


def shortest(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Float64 numbers whose decimal text is short (8 or 9 digits) and reads back as the same float32.

    A float32 turned into a float64 as it is prints 17 digits, most of them noise. Nine significant digits always tell
    two float32 apart, and a decimal n / 10**k with n < 2**53 and k <= 22 is one correctly rounded division.
    Magnitudes outside 1e-14 .. 1e9, which vectors do not have, keep their exact value.
    """
    exact = values.astype(np.float64)
    magnitude = np.abs(exact)
    with np.errstate(divide="ignore", invalid="ignore"):
        places = 8 - np.floor(np.log10(magnitude))
    usable = (places >= 1) & (places <= 22)
    places = np.where(usable, places, 1).astype(np.intp)
    scale = _POWERS[places]
    nine = np.rint(exact * scale) / scale
    scale = _POWERS[places - 1]
    eight = np.rint(exact * scale) / scale
    short = np.where(eight.astype(np.float32) == values, eight, nine)
    return np.where(usable & (short.astype(np.float32) == values), short, exact)


def json_numbers(values: NDArray[np.generic]) -> bytes:
    """JSON text of an array of any shape; floats in a short form that reads back to the same number.

    Raises:
        ValueError: a number is not finite, which JSON cannot say.
    """
    if values.dtype.kind != "f":
        return _encode(values.tolist())
    finite(values)
    # float16 is exact in float32, and its text need not be longer
    return _encode(shortest(values.astype(np.float32, copy=False)).tolist())


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
        part = rows[start : start + step]
        numbers = shortest(part.astype(np.float32, copy=False)) if rows.dtype.kind == "f" else part
        texts += [_encode(row) for row in numbers.tolist()]
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

"""Output dtypes of vectors, quantised row by row (contract F.3). All functions are vectorised over rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...protocol.events import Tensor
from ...protocol.work import OutputDtype

Floats = NDArray[np.float32]


def tensor(array: NDArray[np.generic]) -> Tensor:
    """The array as raw little-endian C-contiguous bytes."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return Tensor(little.dtype.str, little.shape, little.tobytes())


def quantized(rows: Floats, dtype: OutputDtype, *, constant: int = 128) -> Tensor:
    """Rows (n, d) of float32 in another dtype.

    float16: cast. int8: ``x / max|x| * 127`` rounded half to even, a row of zeros stays zeros. uint8:
    ``(x - min) / (max - min) * 255`` rounded half to even, a constant row becomes ``constant``. binary: the bits
    ``x > 0``, eight to a byte, most significant first, the last byte filled up with zeros.
    """
    if dtype == "float32":
        return tensor(rows)
    if dtype == "float16":
        largest = np.finfo(np.float16).max  # beyond it a cast gives infinity, which is not JSON
        return tensor(np.clip(rows, -largest, largest).astype(np.float16))
    if dtype == "int8":
        peak = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
        return tensor(np.rint(rows / np.where(peak > 0, peak, 1.0) * 127.0).astype(np.int8))
    if dtype == "uint8":
        return tensor(_uint8(rows, constant))
    return tensor(np.packbits(rows > 0, axis=1))


def _uint8(rows: Floats, constant: int) -> NDArray[np.uint8]:
    low = rows.min(axis=1, keepdims=True)
    span = rows.max(axis=1, keepdims=True) - low
    scaled = np.rint((rows - low) / np.where(span > 0, span, 1.0) * 255.0)
    return np.where(span > 0, scaled, constant).astype(np.uint8)

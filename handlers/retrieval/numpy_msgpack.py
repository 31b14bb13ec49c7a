"""MessagePack with arrays, as msgpack-numpy writes them and the official SDK reads them.

An array is a map whose keys are *binary*: ``nd`` true, ``type`` the dtype with byte order (``<f4``), ``kind`` empty,
``shape`` and ``data``, the raw C-ordered bytes. All other keys are plain strings. Source: contract F.7.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np


def _array(value: Any) -> dict[bytes, object]:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} has no MessagePack form")
    return {
        b"nd": True,
        b"type": value.dtype.str,
        b"kind": b"",
        b"shape": list(value.shape),
        b"data": np.ascontiguousarray(value).data if value.size else b"",
    }


_encoder = msgspec.msgpack.Encoder(enc_hook=_array)


def encode(value: object) -> bytes:
    """MessagePack of plain values, structs and arrays.

    Raises:
        TypeError: a value of another type.
    """
    return _encoder.encode(value)

"""MessagePack as the official SDK reads it (contract F.7)."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

DTYPES = {f"{order}{kind}" for order in "<>" for kind in ("f2", "f4", "f8", "i2", "i4", "i8", "u2", "u4", "u8")}
DTYPES |= {"|b1", "|i1", "|u1"}


def unpack(raw: bytes) -> Any:
    """The value of a body, with its arrays."""
    return _arrays(msgspec.msgpack.decode(raw))


def array(value: dict[Any, Any]) -> Any:
    """An array from its map: binary keys, known dtypes, at most eight dimensions."""
    assert value.keys() == {b"nd", b"type", b"kind", b"shape", b"data"}
    assert value[b"nd"] is True
    assert value[b"type"] in DTYPES
    assert len(value[b"shape"]) <= 8
    return np.frombuffer(value[b"data"], dtype=value[b"type"]).reshape(value[b"shape"])


def _arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return array(value) if b"nd" in value else {key: _arrays(member) for key, member in value.items()}
    return [_arrays(member) for member in value] if isinstance(value, list) else value

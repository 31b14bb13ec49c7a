"""Replies of the native operations, in JSON or MessagePack as the client asked. Source: contract F.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from engines.protocol.work import Item
from generated.sie.interfaces import Context

from ..errors import Failure
from . import numpy_msgpack, vectors

_MSGPACK: Final = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")


def wants_msgpack(context: Context) -> bool:
    """Whether ``Accept`` names MessagePack; JSON otherwise. Settles the reply's media type."""
    accept = (context.header("accept") or "").lower()
    asked = next((name for name in _MSGPACK if name in accept), None)
    context.media_type = asked or "application/json"
    return asked is not None


def encode(context: Context, reply: Mapping[str, object]) -> bytes:
    """Encode a reply. Arrays become lists of numbers in JSON and msgpack-numpy arrays in MessagePack.

    Raises:
        Failure: 500 ``SERIALIZATION_ERROR``; a number is not finite, or a worker's value has no form on the wire.
    """
    try:
        return numpy_msgpack.encode(reply) if wants_msgpack(context) else _json.encode(reply)
    except (ValueError, TypeError, OverflowError) as error:
        raise Failure(
            500, "transport_failure", f"The result has no form on the wire: {error}", native="SERIALIZATION_ERROR"
        ) from None


def item_id(item: Item, index: int) -> str:
    """The caller's id of an item, or ``item-<index>``."""
    return f"item-{index}" if item.id is None else item.id


def _array(value: object) -> msgspec.Raw:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return msgspec.Raw(vectors.json_numbers(value))


_json: Final = msgspec.json.Encoder(enc_hook=_array)

"""Bytes on the bus: work items and arrays of events, both MessagePack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from engines.protocol.events import Missed, WireEvent
from engines.protocol.work import Work

_encoder = msgspec.msgpack.Encoder()
_work = msgspec.msgpack.Decoder(Work)
_events = msgspec.msgpack.Decoder(list[WireEvent])
_missed = msgspec.msgpack.Decoder(list[Missed])

encode = _encoder.encode
decode_work = _work.decode
decode_events = _events.decode
decode_missed = _missed.decode


def pack(parts: Sequence[bytes]) -> bytes:
    """One MessagePack array of already encoded values."""
    count = len(parts)
    if count < 16:
        head = bytes((0x90 | count,))
    elif count < 1 << 16:
        head = b"\xdc" + count.to_bytes(2, "big")
    else:
        head = b"\xdd" + count.to_bytes(4, "big")
    return head + b"".join(parts)


def split(parts: Sequence[bytes], limit: int) -> Iterator[Sequence[bytes]]:
    """Cut ``parts`` into runs whose packed size stays within ``limit`` bytes; a part over the limit goes alone."""
    start = 0
    size = 5
    for index, part in enumerate(parts):
        if index > start and size + len(part) > limit:
            yield parts[start:index]
            start, size = index, 5
        size += len(part)
    if start < len(parts):
        yield parts[start:]

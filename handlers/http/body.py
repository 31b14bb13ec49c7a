"""Reading a request body in bounds."""

from __future__ import annotations

from typing import cast

from litestar.types import Receive

from ..errors import InvalidField, PayloadTooLarge, UnsupportedEncoding


class ClientGone(Exception):
    """The client closed the connection before it had sent its whole request."""


def content_length(raw: dict[bytes, bytes]) -> int | None:
    """The announced length, or ``None`` for a chunked body.

    Raises:
        InvalidField: not a number.
    """
    value = raw.get(b"content-length")
    if value is None:
        return None
    if not value.isdigit():
        raise InvalidField(None, "Malformed Content-Length")
    return int(value)


def refuse_encoding(raw: dict[bytes, bytes]) -> None:
    """Bodies are read as they come.

    Raises:
        UnsupportedEncoding: this one is compressed.
    """
    encoding = raw.get(b"content-encoding", b"").decode("latin-1").strip()
    if encoding.lower() not in ("", "identity"):
        raise UnsupportedEncoding(encoding)


async def next_part(receive: Receive) -> tuple[bytes, bool]:
    """The next bytes of the body, and whether more come.

    Raises:
        ClientGone: the client left.
    """
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return cast("bytes", message.get("body", b"")), bool(message.get("more_body"))


async def read(raw: dict[bytes, bytes], receive: Receive, limit: int) -> bytes:
    """The whole body.

    Raises:
        PayloadTooLarge: more than ``limit`` bytes announced or sent. Nothing beyond the limit is kept.
        ClientGone: the client left.
    """
    if (content_length(raw) or 0) > limit:
        raise PayloadTooLarge(f"The request body is larger than {limit} bytes")
    body, more = await next_part(receive)
    if not more and len(body) <= limit:
        return body
    parts, size = [body], len(body)
    while more and size <= limit:
        body, more = await next_part(receive)
        parts.append(body)
        size += len(body)
    if size > limit:
        raise PayloadTooLarge(f"The request body is larger than {limit} bytes")
    return b"".join(parts)

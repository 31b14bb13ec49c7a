"""Decoding of bodies: one prepared decoder per operation and media type."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import jsonschema_rs
import msgspec

from ..errors import Failure, InvalidField, UnsupportedMediaType
from .explain import explain, explain_schema, integral

THREAD_FROM: Final = 256 * 1024
"""Bodies from this many bytes are decoded on a thread, so that the event loop runs beside the Python in it.

One call of msgspec's decoder is not interrupted: it keeps the loop waiting for about 10 ms per MiB of small values.
"""


def _is_msgpack(media: str) -> bool:
    return "msgpack" in media


class BodyDecoder:
    """Decodes the body of one operation.

    Args:
        type: What msgspec decodes to.
        media: Media types, the first being the one of a body without ``Content-Type``.
        schema: JSON Schema of the second pass, for what msgspec cannot express; ``None``: no second pass.
    """

    def __init__(self, type: Any, media: tuple[str, ...], schema: Mapping[str, Any] | None = None) -> None:
        self.type = type
        self.media = media
        self._decoders: dict[str, Callable[[bytes], Any]] = {
            name: (msgspec.msgpack if _is_msgpack(name) else msgspec.json).Decoder(type).decode for name in media
        }
        self._chosen = {name.encode(): name for name in media}
        self._schema = schema or {}
        self._validator = None if schema is None else jsonschema_rs.validator_for(dict(schema), validate_formats=True)

    def __call__(self, content_type: bytes | None, raw: bytes) -> Any:
        """The decoded body.

        Raises:
            UnsupportedMediaType: the operation does not take that ``Content-Type``.
            Failure: 400, malformed or not as the document says; ``param`` names the field.
        """
        return self.decode(self.choose(content_type), raw)

    async def in_thread(self, content_type: bytes | None, raw: bytes) -> Any:
        """The same for a body of ``THREAD_FROM`` bytes or more."""
        return await asyncio.to_thread(self, content_type, raw)

    def choose(self, content_type: bytes | None) -> str:
        """The media type that ``content_type`` names. A body without one is taken as the first of the document."""
        if not content_type:
            return self.media[0]
        if (known := self._chosen.get(content_type)) is not None:
            return known
        media = content_type.decode("latin-1").partition(";")[0].strip().lower()
        if media not in self._decoders:
            raise UnsupportedMediaType(media, self.media)
        return media

    def decode(self, media: str, raw: bytes) -> Any:
        """Decode ``raw`` as ``media`` and validate it."""
        try:
            body = self._decoders[media](raw)
        except msgspec.ValidationError as error:
            body = self._second_chance(media, raw, error)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidField(None, f"Malformed body: {error}") from None
        except RecursionError:
            raise InvalidField(None, "The body is nested too deeply") from None
        if self._validator is not None:
            self._second_pass(media, raw)
        return body

    def _second_chance(self, media: str, raw: bytes, error: msgspec.ValidationError) -> Any:
        text = str(error)
        if "got `float`" not in text and not ("`bytes" in text and "got `str`" in text):
            raise explain(error) from None
        try:
            plain = _plain(media, raw)
            # base64 stands for bytes in MessagePack too, where a text field is all that a client has
            try:
                return msgspec.convert(integral(plain), self.type)
            except msgspec.ValidationError:
                # an integer without bounds may be a float that no machine integer holds
                return msgspec.convert(integral(plain, below=math.inf), self.type)
        except msgspec.ValidationError as again:
            # the integer was a float when it came
            same = str(again).replace("got `int`", "got `float`") == text
            raise explain(error if same else again) from None
        except RecursionError:
            raise InvalidField(None, "The body is nested too deeply") from None

    def _second_pass(self, media: str, raw: bytes) -> None:
        assert self._validator is not None
        try:
            error = next(iter(self._validator.iter_errors(_plain(media, raw))), None)
        except ValueError as fault:  # an integer or a depth that the validator cannot take
            raise InvalidField(None, f"The body cannot be validated: {fault}") from None
        if error is not None:
            raise explain_schema(error, self._schema)


def _plain(media: str, raw: bytes) -> Any:
    return (msgspec.msgpack if _is_msgpack(media) else msgspec.json).decode(raw)


__all__ = ["THREAD_FROM", "BodyDecoder", "Failure"]

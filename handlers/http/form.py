"""Multipart forms, parsed while they come in and in bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from litestar.types import Receive
from multipart import (  # type: ignore[import-untyped]  # it has no stubs
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from ..errors import InvalidField, PayloadTooLarge, UnsupportedField, UnsupportedMediaType
from .body import content_length, next_part
from .explain import explain

Kind = Literal["file", "text", "bool"]
MAX_FILE: Final = 24 * 1024 * 1024
MAX_TEXT: Final = 8 * 1024
MAX_PARTS: Final = 16
_MEDIA: Final = "multipart/form-data"


class FormDecoder:
    """Decodes the form of one operation into its struct.

    A field of type ``bytes`` is a file, one that is an array may repeat (with or without ``[]`` after its name), and
    every other may come once. Texts are UTF-8; booleans are ``true`` and ``false``, nothing else.
    """

    def __init__(self, type: Any) -> None:
        self.type = type
        self.media = (_MEDIA,)
        self._kinds: dict[str, Kind] = {}
        self._many: set[str] = set()
        info = msgspec.inspect.type_info(type)
        assert isinstance(info, msgspec.inspect.StructType)
        for field in info.fields:
            kinds = _kinds(field.type)
            file, boolean = msgspec.inspect.BytesType in kinds, msgspec.inspect.BoolType in kinds
            self._kinds[field.encode_name] = "file" if file else "bool" if boolean else "text"
            if msgspec.inspect.ListType in kinds:
                self._many.add(field.encode_name)

    async def __call__(self, raw: dict[bytes, bytes], receive: Receive, limit: int, filenames: dict[str, str]) -> Any:
        """Read and decode. ``filenames`` gets the name that the client gave each file.

        Raises:
            UnsupportedMediaType: not a form.
            PayloadTooLarge: the form, a file or a text is too long.
            Failure: 400, malformed, unknown field, field given twice, or not as the document says.
        """
        parser = self._parser(raw)
        if (content_length(raw) or 0) > limit:
            raise PayloadTooLarge(f"The form is larger than {limit} bytes")
        fields: dict[str, Any] = {}
        part = _Part()
        size, more = 0, True
        try:
            while more:
                chunk, more = await next_part(receive)
                size += len(chunk)
                if size > limit:
                    raise PayloadTooLarge(f"The form is larger than {limit} bytes")
                for event in parser.parse(chunk) if chunk else ():
                    if isinstance(event, MultipartSegment):
                        part = self._open(event, filenames)
                    elif event is None:
                        self._close(part, fields)
                    else:
                        part.add(event)
            parser.close()
        except ParserLimitReached as error:
            raise PayloadTooLarge(f"The form is over a limit: {error}") from None
        except (MultipartError, UnicodeDecodeError, LookupError) as error:
            raise InvalidField(None, f"Malformed form: {error}") from None
        try:
            return msgspec.convert(fields, self.type, strict=False, builtin_types=(bytes,))
        except msgspec.ValidationError as error:
            raise explain(error) from None

    def _parser(self, raw: dict[bytes, bytes]) -> PushMultipartParser:
        content_type = raw.get(b"content-type", b"").decode("latin-1")
        media, options = parse_options_header(content_type)
        if media != _MEDIA:
            raise UnsupportedMediaType(media, self.media)
        if not options.get("boundary"):
            raise InvalidField(None, "Malformed form: the Content-Type has no boundary")
        return PushMultipartParser(options["boundary"], max_segment_count=MAX_PARTS)

    def _open(self, segment: MultipartSegment, filenames: dict[str, str]) -> _Part:
        name = str(segment.name)
        if name not in self._kinds and f"{name}[]" in self._kinds:
            name = f"{name}[]"
        kind = self._kinds.get(name)
        if kind is None:
            raise UnsupportedField(name)
        if kind == "file":
            if not segment.filename:
                raise InvalidField(name, f"'{name}' must be a file with a filename")
            filenames[name] = str(segment.filename)
        return _Part(name, kind)

    def _close(self, part: _Part, fields: dict[str, Any]) -> None:
        value = part.value()
        if part.name in self._many:
            fields.setdefault(part.name, []).append(value)
        elif part.name in fields:
            raise InvalidField(part.name, f"'{part.name}' is given more than once")
        else:
            fields[part.name] = value


class _Part:
    """One part of the form while it comes in."""

    __slots__ = ("chunks", "kind", "name", "size")

    def __init__(self, name: str = "", kind: Kind = "text") -> None:
        self.name = name
        self.kind = kind
        self.chunks: list[bytes] = []
        self.size = 0

    def add(self, chunk: bytes | bytearray) -> None:
        self.size += len(chunk)
        if self.size > (MAX_FILE if self.kind == "file" else MAX_TEXT):
            raise PayloadTooLarge(f"'{self.name}' is too long", self.name)
        self.chunks.append(bytes(chunk))

    def value(self) -> Any:
        whole = b"".join(self.chunks)
        if self.kind == "file":
            return whole
        text = whole.decode("utf-8")
        if self.kind == "text":
            return text
        try:
            return {"true": True, "false": False}[text]
        except KeyError:
            raise InvalidField(self.name, "Expected `true` or `false`") from None


def _kinds(type_: msgspec.inspect.Type) -> set[Callable[..., Any]]:
    if isinstance(type_, msgspec.inspect.UnionType):
        return {kind for member in type_.types for kind in _kinds(member)}
    if isinstance(type_, msgspec.inspect.Metadata):
        return _kinds(type_.type)
    return {type(type_)}

"""What can be known of an operation before its first request: decoders, media types, the envelope of each status."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

from ..errors import Failure
from .answers import EVENT_STREAM
from .decode import BodyDecoder
from .envelopes import SHAPES, Family, Shape, detail
from .form import FormDecoder
from .parameters import Parameters

logger = logging.getLogger("sie.http")

BODY_LIMIT: Final = 16 * 1024 * 1024
"""Bytes that a body may have where the table names no limit (contract A.8)."""
_NEAREST: Final[Mapping[int, tuple[int, ...]]] = {
    403: (401, 400),
    404: (400,),
    408: (504, 503),
    409: (400,),
    413: (400,),
    415: (400,),
    429: (503,),
    502: (500, 503),
    503: (500,),
    504: (503, 500),
}
_ALWAYS: Final = frozenset({426, 500, 501})
_PLAIN: Final = Shape("detail", detail)


def type_names(types: tuple[Any, ...]) -> tuple[str, ...]:
    """Names of the schemas behind ``types``, with unions taken apart."""
    names: list[str] = []
    for type_ in types:
        if get_origin(type_) in (UnionType, Union):
            names += type_names(get_args(type_))
        else:
            names.append(getattr(type_, "__name__", str(type_)))
    return tuple(names)


class Envelope(NamedTuple):
    """How one failure leaves: its status, the shape of its body, the kind of surface, the declared header names."""

    status: int
    shape: Shape
    family: Family
    headers: frozenset[str] = frozenset()


class Plan:
    """One operation, prepared.

    Args:
        operation: Row of the generated table.
        schemas: ``components.schemas`` of the document, for the second pass.
        shapes: Envelopes by schema name.
        limit: The operator's own body limit, or ``None``.
    """

    def __init__(
        self,
        operation: Any,
        schemas: Mapping[str, Any],
        shapes: Mapping[str, Shape] = SHAPES,
        limit: int | None = None,
    ) -> None:
        self.operation = operation
        self.secured: bool = operation.secured
        self.admin: bool = operation.admin
        self.limited: bool = operation.body is not None and not operation.admin
        self.success: int = operation.success
        self.limit: int = limit or (operation.body and operation.body.max_bytes) or BODY_LIMIT
        success = operation.responses.get(operation.success)
        content = tuple(success.content) if success is not None else ()
        self.media = tuple(name for name in content if name != EVENT_STREAM) or ("application/json",)
        self.parameters = Parameters(operation.parameters)
        self.decode = _decoder(operation, schemas)
        self.shapes: dict[int, tuple[Shape, ...]] = {}
        for status, response in operation.responses.items():
            if status >= 400 and (types := response.content.get("application/json")):
                self.shapes[status] = tuple(_shape(name, shapes, types) for name in type_names(types))
        self.declared = {
            status: frozenset(name.lower() for name in response.headers)
            for status, response in operation.responses.items()
        }
        self.family: Family = _family(self.shapes)

    def settle(self, failure: Failure) -> Envelope:
        """How ``failure`` leaves the server.

        A status that the operation does not declare is replaced by the nearest it does, and logged: only 500 and, for
        what is not implemented, 501 are always possible.
        """
        status = failure.status
        if status == 400 and 400 not in self.shapes and 422 in self.shapes:
            status = 422  # the document's own status for a refused body
        if status not in self.shapes and status not in _ALWAYS:
            nearest = (*_NEAREST.get(status, ()), *((400, 422) if status < 500 else (500,)))
            status = next((s for s in nearest if s in self.shapes), 500)
            logger.error(
                "operation %s does not declare status %d (%s); answered %d",
                self.operation.id,
                failure.status,
                failure.code,
                status,
            )
        shapes = self.shapes.get(status) or self.common()
        shape = next((shape for shape in shapes if shape.fits(failure)), shapes[-1])
        return Envelope(status, shape, self.family, self.declared.get(status, frozenset()))

    def common(self) -> tuple[Shape, ...]:
        """Shapes for a status that needs no declaration: those of another error of the same kind."""
        for status in (400, 404, 501, 500, 401):
            for shape in self.shapes.get(status, ()):
                if shape.family == self.family:
                    return (shape,)
        return (_PLAIN,)


def _shape(name: str, shapes: Mapping[str, Shape], types: tuple[Any, ...]) -> Shape:
    """A registered shape, or the one that the fields of the schema suggest."""
    if name in shapes:
        return shapes[name]
    fields = next((t.__struct_fields__ for t in types if getattr(t, "__name__", "") == name), ())
    for field, like in (("error", "OpenAIErrorEnvelope"), ("message", "RerankError")):
        if field in fields:
            return shapes[like]
    return _PLAIN


def _family(shapes: Mapping[int, tuple[Shape, ...]]) -> Family:
    families = [shape.family for status in (400, 404, 501, 500) for shape in shapes.get(status, ())]
    return next((family for family in families if family != "detail"), "detail")


def _decoder(operation: Any, schemas: Mapping[str, Any]) -> BodyDecoder | FormDecoder | None:
    body = operation.body
    if body is None:
        return None
    if body.multipart:
        return FormDecoder(body.type)
    schema = None
    if body.schema is not None:
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$ref": f"#/components/schemas/{body.schema}",
            "components": {"schemas": schemas},
        }
    return BodyDecoder(body.type, body.media, schema)

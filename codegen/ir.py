"""The intermediate form: what the templates know of a document."""

from __future__ import annotations

import msgspec


class Type(msgspec.Struct, frozen=True, kw_only=True):
    """A Python type of a body.

    Attributes:
        name: class of models.py when ``model``, else a built-in expression such as `dict[str, Any]`.
    """

    name: str
    model: bool = False

    @property
    def code(self) -> str:
        return f"models.{self.name}" if self.model else self.name


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    location: str
    required: bool
    type: str  # Python expression


class Body(msgspec.Struct, frozen=True, kw_only=True):
    type: Type
    media: tuple[str, ...]
    required: bool
    schema: str | None
    multipart: bool
    max_bytes: int | None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    description: str
    content: dict[str, tuple[Type, ...]]
    headers: tuple[str, ...]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    method: str
    path: str
    tag: str
    doc: str
    parameters: tuple[Parameter, ...]
    body: Body | None
    responses: tuple[Response, ...]
    success: int
    secured: bool
    admin: bool
    websocket: bool
    catch_all: bool

    @property
    def path_parameters(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters if p.location == "path")

    @property
    def answer(self) -> Response:
        """The response of the success status."""
        return next(r for r in self.responses if r.status == self.success)


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    doc: str
    operations: tuple[Operation, ...]


class Service(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    version: str
    tags: tuple[Tag, ...]
    operations: tuple[Operation, ...]

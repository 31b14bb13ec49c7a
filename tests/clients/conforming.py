"""Whether a value is what its annotation says, all the way down: the SDKs build their objects without looking."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import pydantic
from typing_extensions import TypeAliasType


def faults(value: Any, annotation: Any, path: str = "") -> Iterator[str]:
    """Each place in ``value`` that is not of its type, in words.

    Args:
        value: A JSON value, or models of pydantic with fields of such.
        annotation: A type as it stands in a signature.
        path: The place of ``value``, for the words.
    """
    kind, parts = get_origin(annotation), get_args(annotation)
    if annotation in (Any, object) or isinstance(annotation, TypeVar):
        return
    if isinstance(annotation, TypeAliasType):
        yield from faults(value, annotation.__value__, path)
    elif kind is typing.Annotated:
        yield from faults(value, parts[0], path)
    elif kind in (Union, types.UnionType):
        yield from _none_of(value, parts, path)
    elif kind is Literal:
        if value not in parts:
            yield f"{path}: {value!r} is none of {parts}"
    elif kind is list or annotation is list:
        yield from _items(value, parts[0] if parts else Any, path)
    elif kind is dict or annotation is dict:
        yield from _members(value, parts[1] if parts else Any, path)
    elif isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield from _fields(value, annotation, path)
    elif not _is(value, annotation):
        yield f"{path}: {value!r} is no {annotation}"


def conforms(value: Any, annotation: Any) -> bool:
    """Assert that ``value`` is of its type; true, so that it can stand in an ``assert``."""
    found = list(faults(value, annotation, getattr(annotation, "__name__", "value")))
    assert found == [], "\n".join(found)
    return True


def _none_of(value: Any, kinds: tuple[Any, ...], path: str) -> Iterator[str]:
    tried = [list(faults(value, kind, path)) for kind in kinds]
    if all(tried):
        # the one that is nearest is the one that was meant
        yield from min(tried, key=len)


def _items(value: Any, kind: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: {value!r} is no list"
        return
    for index, item in enumerate(value):
        yield from faults(item, kind, f"{path}[{index}]")


def _members(value: Any, kind: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: {value!r} is no object"
        return
    for name, item in value.items():
        yield from faults(item, kind, f"{path}.{name}")


def _fields(value: Any, model: type[pydantic.BaseModel], path: str) -> Iterator[str]:
    if not isinstance(value, model):
        yield f"{path}: {type(value).__name__} is no {model.__name__}"
        return
    for name, field in type(value).model_fields.items():
        if name in value.model_fields_set:
            yield from faults(getattr(value, name), field.annotation, f"{path}.{name}")
        elif field.is_required():
            yield f"{path}.{name}: missing"


def _is(value: Any, kind: Any) -> bool:
    if kind is None or kind is type(None):
        return value is None
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)

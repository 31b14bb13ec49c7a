"""Declared parameters, checked against what the document says of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ..errors import InvalidField
from .context import RequestContext
from .explain import explain


class Parameters:
    """The parameters of one operation that can be wrong: required ones, and those of another type than any text.

    Args:
        declared: Rows of the generated table.
    """

    def __init__(self, declared: Iterable[Any]) -> None:
        declared = tuple(declared)
        path = [parameter.name for parameter in declared if parameter.location == "path"]
        self._path = tuple((path.index(p.name), p) for p in declared if p.location == "path" and p.type is not str)
        self._others = tuple(p for p in declared if p.location != "path" and (p.required or p.type is not str))

    def __bool__(self) -> bool:
        return bool(self._path or self._others)

    def check(self, context: RequestContext, path: Sequence[str]) -> None:
        """Raise InvalidField, naming the parameter, for the first one that is missing or wrong."""
        for index, parameter in self._path:
            _convert(parameter, path[index])
        for parameter in self._others:
            read = context.header if parameter.location == "header" else context.query
            text = read(parameter.name)
            if text is not None:
                _convert(parameter, text)
            elif parameter.required:
                raise InvalidField(parameter.name, f"Missing required {parameter.location} '{parameter.name}'")


def _convert(parameter: Any, text: str) -> None:
    try:
        msgspec.convert(text, parameter.type, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidField(parameter.name, explain(error).message) from None

"""Bounds on the JSON Schemas that clients send, and the inlining of their references (contract D.4).

Structured output compiles a schema into an automaton: its size is bounded before it reaches an engine. References are
local and are replaced by what they point to, so that what is compiled is a tree.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..errors import InvalidField, UnsupportedField

MAX_BYTES: Final = 64 * 1024
MAX_NESTING: Final = 16
MAX_DEPTH: Final = 128
MAX_NODES: Final = 16_384

_REFUSED: Final = frozenset({"$dynamicRef", "if", "then", "else", "unevaluatedProperties", "dependentSchemas"})
_ONE: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "items",
        "not",
        "propertyNames",
        "unevaluatedItems",
    }
)
_MANY: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"patternProperties", "properties"})
_TARGETS: Final = frozenset({"$defs", "definitions"})
_COUNTED: Final = frozenset({"maxContains", "maxItems", "minContains", "minItems"})
"""Keywords whose number is how much the automaton grows by."""
_NOTES: Final = frozenset({"$comment", "default", "deprecated", "description", "examples", "title"})


def inline(schema: dict[str, Any], param: str) -> dict[str, Any]:
    """A copy of ``schema`` without references; ``param`` is its place in the request.

    Raises:
        InvalidField: too large, too deep, a reference that is cyclic or leads nowhere, or not a schema.
        UnsupportedField: a keyword that is not supported, or a reference out of the schema.
    """
    _measure(schema, param)
    inlined: dict[str, Any] = _Inliner(schema, param).schema(schema, param, 0, 0)
    _measure(inlined, param)
    return inlined


def _measure(schema: dict[str, Any], param: str) -> None:
    size = len(msgspec.json.encode(schema))
    if size > MAX_BYTES:
        raise InvalidField(param, f"The schema has {size} bytes; at most {MAX_BYTES} are allowed")


class _Inliner:
    """Walks one schema. ``nesting`` counts schemas within schemas, ``depth`` every container."""

    def __init__(self, root: dict[str, Any], param: str) -> None:
        self.root = root
        self.param = param
        self.nodes = 0.0
        self.open: list[str] = []

    def schema(self, value: Any, path: str, nesting: int, depth: int) -> Any:
        self._count(path, depth)
        if isinstance(value, bool):
            return value
        if not isinstance(value, dict):
            raise InvalidField(path, f"'{path}' must be a schema: an object or a boolean")
        if nesting > MAX_NESTING:
            raise InvalidField(self.param, f"The schema is nested more than {MAX_NESTING} levels deep")
        known = {
            key: self._keyword(key, member, f"{path}.{key}", nesting, depth + 1)
            for key, member in value.items()
            if key not in _TARGETS and key != "$ref"
        }
        return self._reference(value["$ref"], known, path, nesting, depth) if "$ref" in value else known

    def _keyword(self, key: str, value: Any, path: str, nesting: int, depth: int) -> Any:
        if key in _REFUSED:
            raise UnsupportedField(path, f"The JSON Schema keyword '{key}' is not supported")
        if key in _COUNTED and isinstance(value, int | float):
            self._count(path, depth, max(1, value))
            return value
        if key in _NAMED and isinstance(value, dict):
            self._count(path, depth)
            return {
                name: self.schema(member, f"{path}.{name}", nesting + 1, depth + 1) for name, member in value.items()
            }
        if key in _MANY and isinstance(value, list):
            self._count(path, depth)
            return [
                self.schema(member, f"{path}[{index}]", nesting + 1, depth + 1) for index, member in enumerate(value)
            ]
        if key in _ONE or key in _NAMED or key in _MANY:
            return self.schema(value, path, nesting + 1, depth)
        return self._plain(value, path, depth)

    def _plain(self, value: Any, path: str, depth: int) -> Any:
        """A value that is no schema: counted, not read."""
        self._count(path, depth)
        if isinstance(value, dict):
            return {key: self._plain(member, path, depth + 1) for key, member in value.items()}
        return [self._plain(member, path, depth + 1) for member in value] if isinstance(value, list) else value

    def _reference(self, pointer: Any, siblings: dict[str, Any], path: str, nesting: int, depth: int) -> Any:
        where = f"{path}.$ref"
        if not isinstance(pointer, str):
            raise InvalidField(where, f"'{where}' must be a string")
        if pointer != "#" and not pointer.startswith("#/"):
            raise UnsupportedField(where, "Only references within the schema ('#/...') are supported")
        if pointer in self.open or pointer == "#":
            raise InvalidField(where, f"'{where}' refers to itself; recursive schemas are not supported")
        self.open.append(pointer)
        target = self.schema(self._find(pointer, where), path, nesting, depth + 1)
        self.open.pop()
        if not siblings:
            return target
        if isinstance(target, dict) and siblings.keys() <= _NOTES:
            return {**target, **siblings}
        return {"allOf": [target, siblings]}

    def _find(self, pointer: str, where: str) -> Any:
        value: Any = self.root
        for step in pointer[2:].split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(key)] if isinstance(value, list) else value[key]
            except (KeyError, IndexError, TypeError, ValueError):
                raise InvalidField(where, f"'{where}' leads nowhere in the schema") from None
        return value

    def _count(self, path: str, depth: int, nodes: float = 1) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise InvalidField(self.param, f"The schema has more than {MAX_NODES} nodes, those of its arrays counted")
        if depth > MAX_DEPTH:
            raise InvalidField(self.param, f"The schema is more than {MAX_DEPTH} containers deep at '{path[:200]}'")

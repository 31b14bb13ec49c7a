"""Instances of JSON Schemas, and mutations of them, for differential tests."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

STRINGS = ["", "a", " ", "x y", "é中", "text", "user", "0", "12", "\ufeff", "\x1c", "\x85", "a\n", "q" * 129]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 1.0, 1.5, -0.5, 2**31, -(2**31) - 1, 2**63, -(2**63) - 1, 1e300),
    *("", " ", "a", "1", "x" * 40, [], {}, [1], ["a"], [None], {"a": 1}, {"": None}, {"7": 1}),
]


class Instances:
    """Draws instances of one schema; most are valid, the caller checks."""

    def __init__(self, schemas: dict[str, Any], seed: int) -> None:
        self.schemas = schemas
        self.random = random.Random(seed)

    def draw(self, schema: dict[str, Any], depth: int = 0) -> Any:
        if "$ref" in schema:
            return self.draw(self.schemas[schema["$ref"].rpartition("/")[2]], depth)
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        if "properties" in schema:
            nullable = isinstance(schema.get("type"), list) and "null" in schema["type"]
            return None if nullable and self.random.random() < 0.2 else self._object(schema, depth)
        for keyword in ("oneOf", "anyOf"):
            if keyword in schema:
                return self.draw(self.random.choice(schema[keyword]), depth)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self.random.choice(kind)
        if kind is None:
            return self.random.choice([None, 1, "s", [1, "a"], {"k": {"z": []}}, True, 1.5])
        return getattr(self, f"_{kind}")(schema, depth)

    def _null(self, schema: dict[str, Any], depth: int) -> None:
        return None

    def _boolean(self, schema: dict[str, Any], depth: int) -> bool:
        return self.random.random() < 0.5

    def _integer(self, schema: dict[str, Any], depth: int) -> int:
        low = schema.get("minimum", -3)
        return self.random.choice([low, low + 1, schema.get("maximum", low + 2)])

    def _number(self, schema: dict[str, Any], depth: int) -> float:
        low, high = schema.get("minimum", schema.get("exclusiveMinimum", -2)), schema.get("maximum", 2)
        return self.random.choice([high, low + (high - low) / 2, low if "minimum" in schema else high])

    def _string(self, schema: dict[str, Any], depth: int) -> str:
        if schema.get("format") == "byte":
            return self.random.choice(["", "YQ==", "aGVsbG8="])
        fitting = [s for s in STRINGS if schema.get("minLength", 0) <= len(s) <= schema.get("maxLength", 10**9)]
        return self.random.choice(fitting)

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        low = schema.get("minItems", 0)
        return [
            self.draw(schema.get("items", {}), depth + 1)
            for _ in range(self.random.randint(low, min(schema.get("maxItems", low + 2), low + 2)))
        ]

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        drawn = {}
        for name, member in schema.get("properties", {}).items():
            if name in schema.get("required", ()) or self.random.random() < (0.6 if depth < 3 else 0.2):
                drawn[name] = self.draw(member, depth + 1)
        if isinstance(schema.get("additionalProperties"), dict):
            for key in self.random.sample(["a", "7", "12"], self.random.randint(0, 2)):
                drawn[key] = self.draw(schema["additionalProperties"], depth + 1)
        if branch := self.random.choice([*schema.get("oneOf", []), *schema.get("anyOf", []), {}]):
            for name in branch.get("required", ()):
                drawn.setdefault(name, self.draw(schema["properties"][name], depth + 1))
        return drawn


def mutations(instance: Any) -> Iterator[Any]:
    """The instance with one thing changed: a value replaced, a member removed, an unknown member added."""
    for place in list(_places(instance)):
        for value in VALUES:
            yield _with(instance, place, value)
        if place and isinstance(place[-1], str):
            changed = copy.deepcopy(instance)
            del _at(changed, place[:-1])[place[-1]]
            yield changed
        if isinstance(node := _at(instance, place), dict):
            yield _with(instance, place, {**node, "zz_unknown": 1})


def _places(node: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield at
    members: list[tuple[str | int, Any]] = []
    if isinstance(node, dict):
        members = list(node.items())
    elif isinstance(node, list):
        members = list(enumerate(node[:2]))
    for key, value in members:
        yield from _places(value, (*at, key))


def _at(node: Any, place: tuple[str | int, ...]) -> Any:
    for key in place:
        node = node[key]
    return node


def _with(instance: Any, place: tuple[str | int, ...], value: Any) -> Any:
    if not place:
        return value
    changed = copy.deepcopy(instance)
    _at(changed, place[:-1])[place[-1]] = value
    return changed

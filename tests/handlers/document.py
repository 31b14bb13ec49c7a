"""What the served document says of request bodies, for the tests that ask whether a table covers it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from generated.sie import operations
from generated.sie.operations import Operation

DOCUMENT: Final = msgspec.json.decode(Path(operations.DOCUMENT).read_bytes())
_SCHEMAS: Final = DOCUMENT["components"]["schemas"]


def body_schema(operation: Operation) -> Any:
    """The schema of the operation's request body."""
    content = DOCUMENT["paths"][operation.path][operation.method.lower()]["requestBody"]["content"]
    return next(iter(content.values()))["schema"]


def properties(schema: Any, path: str = "", within: frozenset[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Path and schema of each property and of those in it; ``[]`` stands for the items of an array."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in within:
            yield from properties(_SCHEMAS[name], path, within | {name})
        return
    for branch in (branch for key in ("allOf", "anyOf", "oneOf") for branch in schema.get(key, ())):
        yield from properties(branch, path, within)
    for name, member in schema.get("properties", {}).items():
        at = f"{path}.{name}" if path else name
        yield at, member
        yield from properties(member, at, within)
    if isinstance(schema.get("items"), dict):
        yield from properties(schema["items"], f"{path}[]", within)


def takes_anything(schema: Mapping[str, Any]) -> bool:
    """Whether no value breaks the schema."""
    return not set(schema) - {"description", "title", "default", "examples"}


def touched(change: Mapping[str, Any]) -> Iterator[str]:
    """The properties that a change sets, by their paths in the document, and those around them."""
    for path, value in change.items():
        plain = re.sub(r"\.\d+", "[]", path)
        yield from _members(value, plain)
        while plain := plain.rpartition(".")[0]:
            yield plain.removesuffix("[]")


def named(params: Iterable[str | None]) -> set[str]:
    """The properties that errors name (``items[3].text`` is one of ``items[].text``)."""
    return {re.sub(r"\[\d+\]", "[]", param) for param in params if param}


def _members(value: Any, path: str) -> Iterator[str]:
    yield path
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _members(member, f"{path}.{name}")
    elif isinstance(value, list):
        for member in value:
            yield from _members(member, f"{path}[]")

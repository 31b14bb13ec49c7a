"""Reading a YAML file into plain values against a schema; every complaint has a file, a line and a field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from .fields import MapOf, Nullable, Schema


class Problem(msgspec.Struct, frozen=True):
    """One fault of a catalog file. ``line`` counts from 1; ``field`` is a dotted path, empty for the whole file."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: "
        return f"{where}{self.field}: {self.message}" if self.field else f"{where}{self.message}"


class CatalogError(ValueError):
    """Catalog files or settings that cannot be used. ``problems`` lists every fault found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class Lines:
    """Line numbers of the fields of a file, by dotted path."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._lines: dict[str, int] = {}

    def mark(self, field: str, node: yaml.Node) -> None:
        self._lines[field] = node.start_mark.line + 1

    def problem(self, field: str, message: str) -> Problem:
        """A complaint about a field, at its line or that of the nearest parent that is there."""
        path = field
        while path and path not in self._lines:
            path = path.rpartition(".")[0]
        return Problem(self.file, self._lines.get(path, 1), field, message)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML ships no types
    """Plain YAML 1.1 without timestamps, which no field holds (a revision such as 2024-01-01 is a string)."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(path: Path, schema: Schema) -> tuple[dict[str, Any], Lines]:
    """Read a file.

    Raises:
        CatalogError: it is no YAML mapping, or has unknown, repeated or mistyped fields (all of them are listed).
    """
    try:
        loader = _Loader(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CatalogError([Problem(str(path), 1, "", f"cannot be read: {error}")]) from error
    reader = _Reader(loader, Lines(str(path)))
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise CatalogError([Problem(str(path), 1, "", "is no mapping")])
        values = reader.mapping(node, schema, "")
    except RecursionError as error:
        raise CatalogError([Problem(str(path), 1, "", "is nested too deeply")]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        message = getattr(error, "problem", None) or str(error)
        raise CatalogError([Problem(str(path), mark.line + 1 if mark else 1, "", f"is no YAML: {message}")]) from error
    finally:
        loader.dispose()
    if reader.problems:
        raise CatalogError(reader.problems)
    return values, reader.lines


class _Reader:
    """Walks the nodes of one file beside the schema and gathers what is wrong."""

    def __init__(self, loader: _Loader, lines: Lines) -> None:
        self._loader = loader
        self.lines = lines
        self.problems: list[Problem] = []

    def mapping(self, node: yaml.MappingNode, schema: Schema | MapOf, path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(getattr(key_node, "value", ""))
            field = f"{path}.{key}" if path else key
            self.lines.mark(field, key_node)
            if key in result:
                self._complain(field, "is given twice")
            elif isinstance(schema, MapOf):
                result[key] = self._value(value_node, schema.values, field)
            elif key in schema:
                result[key] = self._value(value_node, schema[key], field)
            else:
                self._complain(field, "is not a field of the catalog")
        return result

    def _value(self, node: yaml.Node, expected: Any, field: str) -> Any:
        if isinstance(expected, Nullable):
            if node.tag == "tag:yaml.org,2002:null":
                return None
            expected = expected.schema
        if isinstance(expected, dict | MapOf):
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, expected, field)
            self._complain(field, "must be a mapping")
            return None
        try:
            value = self._loader.construct_object(node, deep=True)
        except (ValueError, OverflowError) as error:  # a number that Python cannot make of such a text
            self._complain(field, f"is no value: {error}")
            return None
        if not _fits(value, expected):
            names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in expected)
            self._complain(field, f"must be {names}, not {type(value).__name__}")
        return value

    def _complain(self, field: str, message: str) -> None:
        self.problems.append(self.lines.problem(field, message))


def _fits(value: Any, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, bool) and bool not in kinds and object not in kinds:
        # bool is an int to Python, not to the catalog
        return False
    return isinstance(value, kinds)

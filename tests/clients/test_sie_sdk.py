"""The official SIE SDK, its release of this contract and its newest, against the real server.

It needs Python 3.12, so each release has an environment of its own, which ``nox -s clients`` makes.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.live import ROOT

HOME = ROOT / "tests" / "clients" / "sie_sdk"
VERSIONS = ("0.6.26", "0.10.1")


@pytest.mark.parametrize("version", VERSIONS)
def test_sie_sdk(base_url: str, version: str) -> None:
    python = ROOT / ".cache" / f"sie-sdk-{version}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no environment for sie-sdk {version}: Python 3.12 was not found when nox made them")
    arguments = ["-q", "-p", "no:cacheprovider", "-c", str(HOME / "pytest.ini"), "--confcutdir", str(HOME)]
    done = subprocess.run(
        [python, "-m", "pytest", *arguments, str(HOME / "suite.py")],
        cwd=HOME,
        env={**os.environ, "SIE_SDK_SERVER": base_url, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout

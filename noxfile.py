"""What a person runs here: ``python3 -m nox -s serve``, ``tests``, ``codegen``, ``lock``, ``bench`` and single checks.

All sessions share one environment, ``.venv`` at the repository root, made from ``requirements/cpu.txt``. It is made
when it is missing and renewed when that file changes; otherwise a session starts at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["tests"]
nox.options.error_on_external_run = False

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
LOCK = ROOT / "requirements" / "cpu.txt"
DEPLOY_LOCK = ROOT / "requirements" / "deploy.txt"
STAMP = VENV / ".lock-sha256"
PEER = Path(os.environ.get("OASGATE_BENCH_INFINITY") or ROOT / ".cache" / "infinity-emb")
PEER_LOCK = ROOT / "bench" / "infinity.txt"
CLIENT_LOCKS = ROOT / "tests" / "clients"
PYTHON = (3, 11)

ALL_TESTS = ("tests",)
UNIT_TESTS = ("tests", "--ignore=tests/contract", "--ignore=tests/clients")
LOCK_HEADER = (
    "# Made by `nox -s lock` from pyproject.toml (extras cpu and dev) and overrides.txt: CPython 3.11, Linux x86-64.\n"
)
DEPLOY_LOCK_HEADER = "# Made by `nox -s lock` from the group deploy of pyproject.toml, with the versions of cpu.txt.\n"
TORCH = re.compile(r"^torch==([\d.]+)\+cpu", re.MULTILINE)


def interpreter() -> str:
    """Return a Python of the locked version: the one that runs nox, else one from ``PATH``."""
    if sys.version_info[:2] == PYTHON:
        return sys.executable
    name = "python{}.{}".format(*PYTHON)
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"The lock is for {name}; nox runs on {sys.version.split()[0]} and {name} is not on PATH.")
    return found


def newer_interpreter() -> str | None:
    """Return a Python of 3.12 or later, which the official SIE SDK needs, from ``PATH`` or pyenv; None without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    names = [sys.executable, *(shutil.which(f"python3.{minor}") or "" for minor in range(12, 20))]
    for name in [*names, *map(str, sorted(pyenv.glob("3.1[2-9]*/bin/python")))]:
        code = "import sys; sys.exit(sys.version_info < (3, 12))"
        if name and subprocess.run([name, "-c", code], capture_output=True, check=False).returncode == 0:
            return name
    return None


def make(session: nox.Session, venv: Path, lock: Path, stamp: Path, *options: str, base: str | None = None) -> None:
    """Bring ``venv`` to what ``lock`` says. Quick when ``stamp`` shows that it is already so."""
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text().strip() == digest:
        return
    python = venv / "bin" / "python"
    if not python.exists():
        # virtualenv comes with nox and, unlike venv, needs no ensurepip of the system
        session.run(sys.executable, "-m", "virtualenv", "--quiet", "--python", base or interpreter(), str(venv))
    session.log(f"Installing {lock.relative_to(ROOT)} into {venv.name} (once, some minutes)")
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    session.run(str(python), *install, *options, "-r", str(lock))
    # pip compiles one file after another; this uses every core, and the first start is not slowed by it
    session.run(str(python), "-m", "compileall", "-q", "-j", "0", str(venv / "lib"), success_codes=(0, 1), silent=True)
    stamp.write_text(digest + "\n")


def environment(session: nox.Session) -> None:
    make(session, VENV, LOCK, STAMP, "--no-deps", "--require-hashes")


def test_environment(session: nox.Session) -> None:
    """The shared environment, with what reads Dockerfiles, charts and dashboards."""
    environment(session)
    make(session, VENV, DEPLOY_LOCK, VENV / ".deploy-lock-sha256", "--no-deps", "--require-hashes")


def client_environments(session: nox.Session) -> None:
    """Make the environments of clients that need one of their own. Without a Python for the SIE SDK, it is skipped."""
    newer = newer_interpreter()
    for lock in sorted(CLIENT_LOCKS.glob("*/*.txt")):
        base = newer if lock.stem.startswith("sie-sdk") else interpreter()
        if base is None:
            session.warn(f"No Python 3.12 was found: the tests of {lock.stem} will be skipped")
            continue
        venv = ROOT / ".cache" / lock.stem
        make(session, venv, lock, venv / ".lock-sha256", "--no-deps", base=base)


def program(session: nox.Session, name: str, *arguments: str) -> None:
    """Run a program of the environment in the repository root."""
    with session.chdir(ROOT):
        session.run(str(BIN / name), *arguments, env={"PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"})


def check_lint(session: nox.Session) -> None:
    program(session, "ruff", "check", ".")
    program(session, "ruff", "format", "--check", ".")


def check_types(session: nox.Session) -> None:
    program(session, "mypy")


def check_codegen(session: nox.Session) -> None:
    program(session, "python", "-m", "codegen", "--check")


def check_tests(session: nox.Session, *selection: str) -> None:
    program(session, "pytest", *selection, *session.posargs)


def address(arguments: Sequence[str]) -> str:
    """Return the address that ``litestar run`` will use with these arguments."""
    host = os.environ.get("LITESTAR_HOST", "127.0.0.1")
    port = os.environ.get("LITESTAR_PORT", "8000")
    words = [part for argument in arguments for part in argument.split("=", 1)]
    for option, value in pairwise(words):
        host = value if option in {"-H", "--host"} else host
        port = value if option in {"-p", "--port"} else port
    return f"http://{host}:{port}"


@nox.session
def serve(session: nox.Session) -> None:
    """Set up and serve; arguments after ``--`` go to ``litestar run``."""
    environment(session)
    session.log(f"Serving on {address(session.posargs)} (documentation: /docs); Ctrl-C stops")
    sys.stdout.flush()
    sys.stderr.flush()
    os.chdir(ROOT)
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    # The server takes the place of nox: a signal for one is a signal for the other, and nobody stands between
    os.execv(str(BIN / "litestar"), ["litestar", "run", *session.posargs])


@nox.session
def tests(session: nox.Session) -> None:
    """Set up and pass everything: lint, types, generated code up to date, and the whole test suite."""
    test_environment(session)
    client_environments(session)
    check_lint(session)
    check_types(session)
    check_codegen(session)
    check_tests(session, *ALL_TESTS)


@nox.session
def lint(session: nox.Session) -> None:
    """Lint and check the format with ruff."""
    environment(session)
    check_lint(session)


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy."""
    environment(session)
    check_types(session)


@nox.session
def codegen(session: nox.Session) -> None:
    """Write ``generated/`` from ``openapi/``; ``-- --check`` finds drift, ``-- --diff OLD NEW`` tells what changes."""
    environment(session)
    program(session, "python", "-m", "codegen", *session.posargs)


@nox.session
def unit(session: nox.Session) -> None:
    """Run the tests that need no server."""
    test_environment(session)
    check_tests(session, *UNIT_TESTS)


@nox.session
def contract(session: nox.Session) -> None:
    """Run schemathesis against the real server with the document it serves."""
    environment(session)
    check_tests(session, "tests/contract")


@nox.session
def clients(session: nox.Session) -> None:
    """Run the OpenAI, Cohere and SIE SDKs, LangChain, and faults, against the real server."""
    environment(session)
    client_environments(session)
    check_tests(session, "tests/clients")


@nox.session(venv_backend="virtualenv", reuse_venv=True)
def lock(session: nox.Session) -> None:
    """Renew the locks in ``requirements/`` from ``pyproject.toml``; pins stay unless ``-- --upgrade`` (``-P NAME``)."""
    session.install("uv")
    wheels = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.find-links"], capture_output=True, text=True, check=False
    ).stdout
    links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS") or wheels

    def compiled(lock: Path, *sources: str) -> None:
        with session.chdir(ROOT):
            session.run(
                *("uv", "pip", "compile", *sources, "--quiet", "--no-header", "--generate-hashes"),
                *("--override", "requirements/overrides.txt", "--index-strategy", "unsafe-best-match"),
                *("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"),
                *("--output-file", str(lock.relative_to(ROOT)), *session.posargs),
                env={"UV_FIND_LINKS": ",".join(links.split())},
                silent=False,
            )

    compiled(LOCK, "pyproject.toml", "--extra", "cpu", "--extra", "dev")
    # The hash already names PyTorch's CPU build; "2.13.0" is matched by a wheel that calls itself 2.13.0+cpu
    LOCK.write_text(LOCK_HEADER + TORCH.sub(r"torch==\1", LOCK.read_text()))
    compiled(DEPLOY_LOCK, "--group", "pyproject.toml:deploy", "--constraint", str(LOCK.relative_to(ROOT)))
    DEPLOY_LOCK.write_text(DEPLOY_LOCK_HEADER + DEPLOY_LOCK.read_text())


@nox.session
def bench(session: nox.Session) -> None:
    """Measure this server beside vLLM's and Infinity's on this machine; arguments go to ``bench/compare.py``."""
    environment(session)
    make(session, PEER, PEER_LOCK, PEER / ".lock-sha256")
    program(session, "python", "bench/compare.py", "--infinity", str(PEER / "bin"), *session.posargs)

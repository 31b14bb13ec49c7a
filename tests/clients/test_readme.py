"""The examples of README, taken from it and run as they stand, so that they cannot rot."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import ROOT

EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = EXAMPLE.findall((ROOT / "README.md").read_text())
SERVED = "http://127.0.0.1:8000"
# Set by a process for its own children; names of buckets
INTERNAL = {"SIE_WORKER_PARENT", "SIE_ENGINE_OWNER", "SIE_PAYLOADS", "SIE_POOLS"}


def run(example: str, base_url: str, folder: Path) -> str:
    """Run an example in a process of its own, with nothing changed but the server's port; return what it prints."""
    assert SERVED in example
    script = folder / "example.py"
    script.write_text(example.replace(SERVED, base_url))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def example_with(word: str) -> str:
    found = [example for example in EXAMPLES if word in example]
    assert len(found) == 1, f"README has {len(found)} examples with {word!r}"
    return found[0]


def test_readme_has_four_examples() -> None:
    assert len(EXAMPLES) == 4


def test_chat_example_streams_right_words(base_url: str, tmp_path: Path) -> None:
    assert "Paris" in run(example_with("stream=True"), base_url, tmp_path)


def test_example_of_the_second_contract_keeps_to_the_choices(base_url: str, tmp_path: Path) -> None:
    assert run(example_with("guided_choice"), base_url, tmp_path).strip() in ("red", "green")


def test_embeddings_example_prints_the_width(base_url: str, tmp_path: Path) -> None:
    assert "384" in run(example_with("embeddings.create"), base_url, tmp_path)


def test_rerank_example_ranks_paris_first(base_url: str, tmp_path: Path) -> None:
    first = run(example_with("rerank"), base_url, tmp_path).splitlines()[0]
    assert "Paris" in first


@pytest.mark.parametrize("command", ["nox -s serve", "nox -s tests"])
def test_readme_names_the_two_commands(command: str) -> None:
    assert command in (ROOT / "README.md").read_text()


def test_configuration_table_lists_every_variable_that_code_reads() -> None:
    name = re.compile(r'"(SIE_[A-Z0-9_]*[A-Z0-9])"')
    sources = [ROOT / "app.py", *(ROOT / "handlers").rglob("*.py"), *(ROOT / "engines").rglob("*.py")]
    read = {variable for source in sources for variable in name.findall(source.read_text())}
    listed = set(re.findall(r"`(SIE_[A-Z0-9_]+)(?:=[a-z]+)?`", (ROOT / "README.md").read_text()))
    assert read - listed - INTERNAL == set()
    assert listed - read == set()

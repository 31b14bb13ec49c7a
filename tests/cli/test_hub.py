"""``litestar models pull``, ``list`` and ``remove`` with the real ``huggingface_hub`` against a hub on loopback."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub import SHA, Hub
from tests.cli.test_models import GOOD
from tests.live import ROOT

WEIGHTS = bytes(range(256)) * 100_000
"""25 MB: huggingface_hub writes in pieces of 10."""
PROGRAM = str(Path(sys.executable).parent / "litestar")
FILES = {"config.json": b"{}", "model.safetensors": WEIGHTS}


class Terminal:
    """Runs the commands as a person does, each in a process of its own, because the hub's address is read once."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.cache = folder / "cache"
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "HF_"))},
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(self.cache),
            "SIE_MODELS_DIR": str(folder),
        }

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, "models", *arguments],
            cwd=ROOT,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def screen(self, *arguments: str) -> str:
        """What a terminal shows of a command that succeeds: progress bars are drawn on terminals alone."""
        ours, its = pty.openpty()
        termios.tcsetwinsize(its, (24, 100))  # without columns there is no bar
        command = [PROGRAM, "models", *arguments]
        with subprocess.Popen(command, cwd=ROOT, env=self._environ, stdin=its, stdout=its, stderr=its) as process:
            os.close(its)
            shown = bytearray()
            with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:
                while piece := terminal.read(65536):  # ends with EIO when the command does
                    shown += piece
        assert process.returncode == 0, shown.decode()
        return shown.decode().replace("\r\n", "\n")

    def weights(self) -> list[Path]:
        """Where the file of weights is, as far as it is whole."""
        return list(self.cache.rglob(f"snapshots/{SHA}/model.safetensors"))


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({"org/good": FILES}).serving() as serving:
        yield serving


@pytest.fixture
def models(tmp_path: Path, hub: Hub) -> Terminal:
    for name in ("good", "missing", "private", "gated"):
        (tmp_path / f"{name}.yaml").write_text(GOOD.format(name=name, adapter="bert_flash"))
    old = GOOD.format(name="old", adapter="bert_flash").replace("hf_id: org/old", "hf_id: org/good")
    (tmp_path / "old.yaml").write_text(f"{old}hf_revision: abandoned\n")
    hub.refused = {"org/private": (401, ""), "org/gated": (403, "GatedRepo")}
    return Terminal(tmp_path, hub)


def line(output: str, name: str) -> str:
    return next(line for line in output.splitlines() if line.split()[0] == name)


def test_weights_are_pulled_listed_and_removed(models: Terminal, hub: Hub) -> None:
    assert line(models("list").stdout, "org/good").endswith("not downloaded")
    shown = models.screen("pull", "org/good")
    assert "100%" in shown, "the progress bar"
    (weights,) = models.weights()
    assert weights.read_bytes() == WEIGHTS
    assert f"org/good: in {weights.parent}" in shown
    assert "downloaded, 25.6M" in line(models("list").stdout, "org/good")
    assert hub.files("model.safetensors") == ["all"]
    assert models("pull", "org/good").returncode == 0
    assert hub.files("model.safetensors") == ["all"], "what is there is not fetched again"
    asked = models("remove", "org/good")
    assert (asked.returncode, models.weights()) == (1, [weights]), "nobody said yes"
    removed = models("remove", "--yes", "org/good")
    assert (removed.returncode, models.weights()) == (0, [])
    assert "removed 25.6M" in removed.stdout
    assert "not downloaded" in models("remove", "org/good").stdout


def test_a_connection_that_breaks_is_resumed_where_it_broke(models: Terminal, hub: Hub) -> None:
    hub.cut["model.safetensors"] = 15_000_000
    pulled = models("pull", "org/good")
    assert pulled.returncode == 0, pulled.stderr
    assert models.weights()[0].read_bytes() == WEIGHTS
    first, second = hub.files("model.safetensors")
    assert (first, second) == ("all", "bytes=10485760-")


def test_a_hub_that_breaks_off_for_good_leaves_what_came_whole(models: Terminal, hub: Hub) -> None:
    hub.gone.add("model.safetensors")
    failed = models("pull", "org/good")
    assert failed.returncode == 1
    assert f"org/good: {hub.url} cannot be reached, or broke off" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert models.weights() == []
    hub.gone.clear()
    assert models("pull", "org/good").returncode == 0
    assert models.weights()[0].read_bytes() == WEIGHTS
    assert hub.files("config.json") == ["all"], "it had come whole"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("org/missing", "the hub refused org/missing: it is not there"),
        ("org/private", "the hub refused org/private: it is not there, or a token is needed (HF_TOKEN)"),
        ("org/gated", "the hub refused org/gated: its licence must be accepted"),
        ("org/old", "the hub refused org/good: it has no revision abandoned"),
        ("org/nothing", "Model 'org/nothing' not found"),
    ],
)
def test_a_model_that_the_hub_does_not_give_is_said_in_one_line(models: Terminal, name: str, said: str) -> None:
    failed = models("pull", name)
    assert failed.returncode == 1
    assert said in failed.stderr
    assert "Traceback" not in failed.stderr
    assert models.weights() == []


def test_a_hub_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD.format(name="good", adapter="bert_flash"))
    failed = Terminal(tmp_path, Hub({}, url="http://127.0.0.1:9"))("pull", "org/good")
    assert failed.returncode == 1
    assert "org/good: http://127.0.0.1:9 cannot be reached" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_one_model_that_fails_does_not_keep_the_others(models: Terminal) -> None:
    done = models("pull", "org/missing", "org/good")
    assert done.returncode == 1
    assert models.weights()[0].read_bytes() == WEIGHTS

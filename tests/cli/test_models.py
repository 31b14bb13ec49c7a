"""``litestar models``, without a worker and without a hub (``test_hub.py`` has one): what it prints, how it exits."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from engines.catalog import Catalog
from engines.cli.attempt import describe, work_for
from engines.cli.models import models
from engines.protocol.events import EncodeOutput, ExtractOutput, ScoreOutput, Tensor
from engines.protocol.work import EncodeWork, ExtractWork, GenerateWork

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
GOOD = """\
sie_id: org/{name}
hf_id: org/{name}
tasks: {{encode: {{dense: {{dim: 8}}}}}}
profiles:
  default: {{adapter_path: "sie_server.adapters.{adapter}:Adapter", max_batch_tokens: 100}}
  long: {{extends: default}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIE_MODELS_DIR", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "good.yaml").write_text(GOOD.format(name="good", adapter="bert_flash"))
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(models, arguments)


def test_list_shows_every_profile_and_where_its_weights_are(folder: Path) -> None:
    done = run("list")
    assert done.exit_code == 0
    rows = {line.split()[0]: line for line in done.output.splitlines()}
    assert {"org/good", "org/good:long", MINILM} <= set(rows)
    assert rows["org/good"].endswith("not downloaded")
    assert "in the package" in rows[MINILM]


def test_check_tells_file_line_and_field_of_what_is_malformed(folder: Path) -> None:
    assert run("check").exit_code == 0
    assert run("check", "--strict").exit_code == 0
    (folder / "refused.yaml").write_text(GOOD.format(name="refused", adapter="glirel"))
    assert run("check").exit_code == 0
    strict = run("check", "--strict")
    assert strict.exit_code == 1
    assert "org/refused" in strict.output
    (folder / "bad.yaml").write_text(GOOD.format(name="bad", adapter="bert_flash") + "colour: red\n")
    bad = run("check")
    assert bad.exit_code == 1
    assert f"{folder / 'bad.yaml'}:7: colour: is not a field of the catalog" in bad.output


@pytest.mark.parametrize("command", ["pull", "remove", "try"])
def test_an_unknown_model_is_said_so(folder: Path, command: str) -> None:
    done = run(command, "no/such", *(["hello"] if command == "try" else []))
    assert done.exit_code == 1
    assert "no/such" in done.output


def test_what_a_package_carries_is_neither_pulled_nor_removed(folder: Path) -> None:
    for command in ("pull", "remove"):
        done = run(command, MINILM)
        assert (done.exit_code, "in the package" in done.output) == (0, True)


def test_without_a_hub_pulling_says_why(folder: Path) -> None:
    done = run("pull", "org/good")
    assert done.exit_code == 1
    assert "HF_HUB_OFFLINE" in done.output


def test_a_disk_that_is_full_is_said_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("huggingface_hub.snapshot_download", full)
    done = run("pull", "org/good")
    assert done.exit_code == 1
    assert "org/good: cannot be kept: [Errno 28] No space left on device" in done.output


def test_pulling_takes_the_revision_of_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def download(repository: str, revision: str | None = None) -> str:
        asked.append((repository, revision))
        return "somewhere"

    (folder / "good.yaml").write_text(GOOD.format(name="good", adapter="bert_flash") + "hf_revision: abc\n")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert run("pull", "org/good").exit_code == 0
    assert asked == [("org/good", "abc")]


def test_the_request_of_a_try_fits_the_model() -> None:
    catalog = Catalog.from_env({})
    kinds = {
        "HuggingFaceTB/SmolLM2-135M-Instruct": GenerateWork,
        MINILM: EncodeWork,
        "spacy/en_core_web_sm": ExtractWork,
    }
    for name, kind in kinds.items():
        work = work_for(catalog.resolve(name), "text", 4, [], "id")
        assert isinstance(work, kind)
        assert (work.model, work.bundle) == (name, "default")


def test_the_same_generation_is_tried_each_time() -> None:
    work = work_for(Catalog.from_env({}).resolve("HuggingFaceTB/SmolLM2-135M-Instruct"), "text", 4, [], "id")
    assert isinstance(work, GenerateWork) and work.sampling.temperature == 0.0


def test_a_model_of_sound_says_where_its_sound_goes() -> None:
    done = run("try", "openai/whisper-tiny.en", "hello")
    assert done.exit_code == 1
    assert "takes no text" in done.output and "/v1/audio/transcriptions" in done.output


def test_answers_are_told_in_a_line() -> None:
    vector = Tensor("<f4", (1, 2), b"\x00\x00\x40\x40\x00\x00\x80\x40")
    assert describe(EncodeOutput(dense=vector)) == "dense, 2 dimensions, norm 5.0000: 3.0000 4.0000"
    assert describe(ScoreOutput(scores=[0.5], kind="similarity")) == "similarity: 0.500000"
    assert describe(ExtractOutput(items=[{"entities": [{"text": "Zoë"}]}])) == '{"entities":[{"text":"Zoë"}]}'

"""How big a model's weights are, from its files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub", reason="a gateway alone has no engines and nothing that fetches weights")

from huggingface_hub import constants

from engines.adapters.files import weight_bytes
from engines.protocol.catalog import Profile


def profile(source: str) -> Profile:
    return Profile(name="default", engine="whisper", adapter_path="fake", source=source)


def write(folder: Path, sizes: dict[str, int]) -> None:
    for name, size in sizes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"model.safetensors": 5, "2_Dense/model.safetensors": 2, "tokenizer.json": 100}, 7),
        ({"model.safetensors": 5, "pytorch_model.bin": 6, "onnx/model.onnx": 7}, 5),
        ({"model-1.safetensors": 5, "model-2.safetensors": 5, "consolidated.safetensors": 10}, 10),
        ({"consolidated.safetensors": 10}, 10),
        ({"pytorch_model.bin": 6}, 6),
        ({"config.json": 6}, 0),
    ],
)
def test_weights_are_counted_once(tmp_path: Path, sizes: dict[str, int], expected: int) -> None:
    write(tmp_path, sizes)
    assert weight_bytes(profile(str(tmp_path)), None) == expected


def test_what_the_hub_has_sent_before_is_found_by_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--org--name"
    for revision, size in (("1" * 40, 3), ("2" * 40, 4)):
        write(repository / "snapshots" / revision, {"model.safetensors": size})
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("2" * 40)
    assert weight_bytes(profile("org/name"), "1" * 40) == 3
    assert weight_bytes(profile("org/name"), None) == 4
    assert weight_bytes(profile("org/name"), "3" * 40) == 0


@pytest.mark.parametrize("source", ["org/other", "no hub id", "/nowhere", "package:no-such-package"])
def test_nothing_is_known_of_what_is_not_here(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert weight_bytes(profile(source), None) == 0

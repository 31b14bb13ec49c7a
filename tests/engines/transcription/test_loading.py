"""Where Whisper's weights are found, and how much memory the engine says they take."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import constants

from engines import embedded
from tests.engines.transcription.conftest import made
from tests.engines.transcription.helpers import WHISPER

REVISION = "1" * 40


@pytest.mark.parametrize("source", [WHISPER, "openai/whisper-tiny.en", "mine/whisper"])
async def test_memory_is_told_wherever_the_weights_come_from(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    folder = embedded.prepare(WHISPER)
    # OpenAI's weights are of another library: the ones that are loaded are Systran's
    for repository in ("models--Systran--faster-whisper-tiny.en", "models--mine--whisper"):
        (tmp_path / repository / "refs").mkdir(parents=True)
        (tmp_path / repository / "refs" / "main").write_text(REVISION)
        (tmp_path / repository / "snapshots").mkdir()
        (tmp_path / repository / "snapshots" / REVISION).symlink_to(folder)
    engine = made(source=source)
    await engine.load()
    try:
        assert engine.status().memory_bytes == (folder / "model.bin").stat().st_size
    finally:
        await engine.close()

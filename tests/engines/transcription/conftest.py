"""The real Whisper tiny.en behind the engine, and speech for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from faster_whisper import WhisperModel

from engines import embedded
from engines.adapters import create
from engines.adapters.base import Engine
from engines.protocol.catalog import ModelEntry, Profile
from engines.protocol.work import TranscribeWork
from tests.engines.retrieval.helpers import Recorder
from tests.engines.transcription.helpers import SENTENCES, WHISPER, speech


def made(**fields: Any) -> Engine:
    """An engine, not loaded yet."""
    profile = Profile(name="default", engine="whisper", adapter_path="tests", **{"source": WHISPER, **fields})
    return create(ModelEntry(name="tested", tasks=("transcribe",), profiles={"default": profile}), profile)


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(scope="session")
def engine(runner: asyncio.Runner) -> Iterator[Engine]:
    loaded = made()
    runner.run(loaded.load())
    yield loaded
    runner.run(loaded.close())


@pytest.fixture(scope="session")
def transcribe(engine: Engine, runner: asyncio.Runner) -> Callable[..., Recorder]:
    """``transcribe(audio, **fields)`` gives a ``Recorder``."""

    def run(audio: bytes, **fields: Any) -> Recorder:
        reply = Recorder()
        runner.run(engine.run(TranscribeWork(request_id="r", model="tested", audio=audio, **fields), reply))
        assert reply.events == ["admitted", "completed"]
        return reply

    return run


@pytest.fixture(scope="session")
def library() -> WhisperModel:
    """The library's own model, as the engine loads it on a CPU."""
    return WhisperModel(str(embedded.prepare(WHISPER)), device="cpu", compute_type="int8")


@pytest.fixture(scope="session")
def sentence() -> bytes:
    return speech(SENTENCES[1])

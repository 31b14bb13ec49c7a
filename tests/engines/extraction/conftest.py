"""Tiny checkpoints made with the real libraries, and an engine around any of them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from engines.adapters import create
from engines.protocol.catalog import EngineKind, ModelEntry, Profile
from engines.protocol.work import Work
from tests.engines.extraction import checkpoints
from tests.engines.extraction.helpers import OpenEngine
from tests.engines.retrieval.helpers import Recorder


@pytest.fixture
def open_engine() -> OpenEngine:
    """``async with open_engine(kind, source, **fields) as run`` gives ``await run(work)``, a ``Recorder``."""

    @asynccontextmanager
    async def opened(kind: EngineKind, source: str, **fields: Any) -> AsyncIterator[Any]:
        profile = Profile(name="default", engine=kind, adapter_path="tests", source=source, **fields)
        entry = ModelEntry(name="tested", tasks=("extract",), profiles={"default": profile})
        engine = create(entry, profile)
        await engine.load()

        async def run(work: Work) -> Recorder:
            reply = Recorder()
            await engine.run(work, reply)
            assert reply.events == ["admitted", "completed"]
            return reply

        try:
            yield run
        finally:
            await engine.close()

    return opened


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random BERT checkpoints with a word tokenizer: without a head, and with one for entailment."""
    return checkpoints.berts(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session", params=["span", "token"])
def gliner_path(request: pytest.FixtureRequest, bert: dict[str, Path], tmp_path_factory: Any) -> str:
    """Entities, by spans and by tokens."""
    if request.param == "span":
        return checkpoints.gliner(bert, tmp_path_factory.mktemp("gliner"), span_mode="markerV0")
    return checkpoints.gliner(bert, tmp_path_factory.mktemp("gliner"), seed=2, span_mode="token_level")


@pytest.fixture(scope="session")
def relex_path(bert: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Entities and relations."""
    return checkpoints.relex(bert, tmp_path_factory.mktemp("relex"))

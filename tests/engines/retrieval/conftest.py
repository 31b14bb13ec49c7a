"""Tiny checkpoints of every kind, made with the real libraries, and an engine around any of them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from sentence_transformers import SentenceTransformer

from engines import embedded
from engines.adapters import create
from engines.adapters.base import Engine
from engines.protocol.catalog import EngineKind, ModelEntry, Profile
from engines.protocol.work import Work
from tests.engines.retrieval import checkpoints
from tests.engines.retrieval.helpers import MINILM, OpenEngine, Recorder


@pytest.fixture
def open_engine() -> OpenEngine:
    """``async with open_engine(kind, source, **entry_and_profile_fields) as run`` gives ``await run(work)``."""

    @asynccontextmanager
    async def opened(
        kind: EngineKind,
        source: str,
        *,
        dims: dict[str, int] | None = None,
        max_sequence_length: int | None = None,
        inputs: tuple[str, ...] = ("text",),
        **fields: Any,
    ) -> AsyncIterator[Callable[[Work], Awaitable[Recorder]]]:
        profile = Profile(name="default", engine=kind, adapter_path="tests", source=source, **fields)
        entry = ModelEntry(
            name="tested",
            inputs=inputs,
            tasks=("encode", "score"),
            dims=dims or {},
            max_sequence_length=max_sequence_length,
            profiles={"default": profile},
        )
        engine: Engine = create(entry, profile)
        await engine.load()

        async def run(work: Work) -> Recorder:
            reply = Recorder()
            await engine.run(work, reply)
            return reply

        run.engine = engine  # type: ignore[attr-defined]  # for tests that look at its status
        try:
            yield run
        finally:
            await engine.close()

    return opened


@pytest.fixture(scope="session")
def minilm_path() -> str:
    """The real all-MiniLM-L6-v2."""
    return str(embedded.prepare(MINILM))


@pytest.fixture(scope="session")
def minilm(minilm_path: str) -> SentenceTransformer:
    """The library's own model, float32."""
    return SentenceTransformer(minilm_path, device="cpu")


@pytest.fixture(scope="session")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random BERT checkpoints with a word tokenizer: plain, with a language-model head, with heads of one and two
    labels."""
    return checkpoints.backbones(tmp_path_factory.mktemp("backbone"))


@pytest.fixture(scope="session")
def cross_path(backbone: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return checkpoints.cross(backbone, tmp_path_factory.mktemp("cross"))


@pytest.fixture(scope="session")
def sparse_path(backbone: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return checkpoints.sparse(backbone, tmp_path_factory.mktemp("sparse"))


@pytest.fixture(scope="session", params=["plain", "expanded"])
def multi_path(request: pytest.FixtureRequest, backbone: dict[str, Path], tmp_path_factory: Any) -> str:
    """Late interaction: without extras, and with query expansion, a prefix, lengths by side and a skip list."""
    return checkpoints.late(backbone, tmp_path_factory.mktemp("multi"), expanded=request.param == "expanded")


@pytest.fixture(scope="session")
def clip_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Images and texts in one space."""
    return checkpoints.clip(tmp_path_factory.mktemp("clip"))

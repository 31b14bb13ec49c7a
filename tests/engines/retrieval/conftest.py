"""Tiny checkpoints of every kind, made with the real libraries, and an engine around any of them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sparse_encoder.modules import SpladePooling
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
)

from engines import embedded
from engines.adapters import create
from engines.adapters.base import Engine
from engines.protocol.catalog import EngineKind, ModelEntry, Profile
from engines.protocol.work import Work
from tests.engines.retrieval.helpers import MINILM, WORDS, OpenEngine, Recorder


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
        **fields: Any,
    ) -> AsyncIterator[Callable[[Work], Awaitable[Recorder]]]:
        profile = Profile(name="default", engine=kind, adapter_path="tests", source=source, **fields)
        entry = ModelEntry(
            name="tested",
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
    """Random BERT checkpoints with a word tokenizer: plain, with a language-model head, with a one-label head."""
    root = tmp_path_factory.mktemp("backbone")
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=5 + len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,  # wide enough that different texts give clearly different answers
    )
    tokenizer = _tokenizer()
    paths: dict[str, Path] = {}
    for name, model in {
        "plain": BertModel(config),
        "language": BertForMaskedLM(config),
        "label": BertForSequenceClassification(BertConfig(**{**config.to_dict(), "num_labels": 1})),
        "labels": BertForSequenceClassification(BertConfig(**{**config.to_dict(), "num_labels": 2})),
    }.items():
        paths[name] = root / name
        model.save_pretrained(paths[name])
        tokenizer.save_pretrained(paths[name])
    return paths


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    rust = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    rust.normalizer = normalizers.Lowercase()
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    rust.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=rust,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


@pytest.fixture(scope="session")
def cross_path(backbone: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("cross")
    CrossEncoder(str(backbone["label"]), device="cpu").save_pretrained(str(path))
    return str(path)


@pytest.fixture(scope="session")
def sparse_path(backbone: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sparse")
    modules = [Transformer(str(backbone["language"]), transformer_task="fill-mask"), SpladePooling("max")]
    SparseEncoder(modules=modules, device="cpu").save_pretrained(str(path))
    return str(path)


@pytest.fixture(scope="session", params=["plain", "expanded"])
def multi_path(request: pytest.FixtureRequest, backbone: dict[str, Path], tmp_path_factory: Any) -> str:
    """Late interaction: without extras, and with query expansion, a prefix, lengths by side and a skip list."""
    path = tmp_path_factory.mktemp("multi")
    torch.manual_seed(8)
    expanded = request.param == "expanded"
    options: dict[str, Any] = {}
    if expanded:
        expansion = {"strategy": "fixed", "length": 12, "token": None, "attend": False}
        options = {"query_length": 12, "document_length": 20, "query_expansion": expansion}
    modules = [
        Transformer(str(backbone["plain"]), **options),
        Dense(32, 16, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings"),
        MultiVectorMask(skiplist_words=["the", "of"] if expanded else None),
        Normalize(module_input_name="token_embeddings"),
    ]
    prompts = {"query": "red ", "document": "blue "} if expanded else None
    MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu").save_pretrained(str(path))
    return str(path)

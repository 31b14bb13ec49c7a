"""Tiny checkpoints made with the real libraries, and an engine around any of them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from gliner import GLiNER
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

from engines.adapters import create
from engines.protocol.catalog import EngineKind, ModelEntry, Profile
from engines.protocol.work import Work
from tests.engines.extraction.helpers import WORDS, OpenEngine
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
    root = tmp_path_factory.mktemp("bert")
    torch.manual_seed(7)
    fields: dict[str, Any] = {
        "vocab_size": 5 + len(WORDS),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,  # wide enough that different texts give clearly different answers
    }

    def classifier(*labels: str) -> BertForSequenceClassification:
        names = dict(enumerate(labels))
        numbers = {label: number for number, label in names.items()}
        return BertForSequenceClassification(BertConfig(**fields, id2label=names, label2id=numbers))

    paths = {}
    for name, model in {
        "plain": BertModel(BertConfig(**fields)),
        "nli": classifier("CONTRADICTION", "NEUTRAL", "ENTAILMENT"),
        "backwards": classifier("entailment", "not"),
        "sentiment": classifier("bad", "good"),
    }.items():
        paths[name] = root / name
        model.save_pretrained(paths[name])
        _tokenizer().save_pretrained(paths[name])
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
        model_max_length=128,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def _gliner(bert: dict[str, Path], path: Path, seed: int = 3, factor: float = 1.5, **fields: Any) -> str:
    torch.manual_seed(seed)
    config = {"model_name": str(bert["plain"]), "hidden_size": 32, "max_width": 4, "max_len": 24, "dropout": 0.0}
    model = GLiNER.from_config({**config, **fields})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "token_rep_layer" not in name:
                parameter.mul_(factor)  # scores far from each other, so that rounding decides nothing
    model.save_pretrained(path)
    return str(path)


@pytest.fixture(scope="session", params=["span", "token"])
def gliner_path(request: pytest.FixtureRequest, bert: dict[str, Path], tmp_path_factory: Any) -> str:
    """Entities, by spans and by tokens."""
    mode = "markerV0" if request.param == "span" else "token_level"
    return _gliner(bert, tmp_path_factory.mktemp("gliner"), seed=3 if request.param == "span" else 2, span_mode=mode)


@pytest.fixture(scope="session")
def relex_path(bert: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Entities and relations."""
    return _gliner(bert, tmp_path_factory.mktemp("relex"), span_mode="markerV0", relations_layer="dot")

"""Tiny checkpoints of every kind of extraction model, random and made with the real libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gliner import GLiNER
from transformers import BertConfig, BertForSequenceClassification, BertModel

from tests.engines.retrieval.checkpoints import SIZE, word_tokenizer
from tests.engines.retrieval.helpers import WORDS

LONGEST = 128


def berts(root: Path) -> dict[str, Path]:
    """BERT without a head, with one for entailment, with one whose columns are the other way round, with another."""
    torch.manual_seed(7)
    fields = {**SIZE, "vocab_size": 5 + len(WORDS), "max_position_embeddings": LONGEST}

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
        word_tokenizer(LONGEST).save_pretrained(paths[name])
    return paths


def gliner(bert: dict[str, Path], path: Path, seed: int = 3, factor: float = 1.5, **fields: Any) -> str:
    """Zero-shot entities; ``fields`` choose the architecture."""
    torch.manual_seed(seed)
    config = {"model_name": str(bert["plain"]), "hidden_size": 32, "max_width": 4, "max_len": 24, "dropout": 0.0}
    model = GLiNER.from_config({**config, **fields})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "token_rep_layer" not in name:
                parameter.mul_(factor)  # scores far from each other, so that rounding decides nothing
    model.save_pretrained(path)
    return str(path)


def relex(bert: dict[str, Path], path: Path) -> str:
    """Entities and relations."""
    return gliner(bert, path, span_mode="markerV0", relations_layer="dot")

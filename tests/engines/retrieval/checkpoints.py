"""Tiny checkpoints of every kind of retrieval model, random and made with the real libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sparse_encoder.modules import SpladePooling
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    CLIPConfig,
    CLIPModel,
    CLIPProcessor,
    PreTrainedTokenizerFast,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from tests.engines.retrieval.helpers import WORDS

SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "initializer_range": 0.3,  # wide enough that different inputs give clearly different answers
}


def word_tokenizer(longest: int = 64) -> PreTrainedTokenizerFast:
    """A token for each of ``WORDS``."""
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
        model_max_length=longest,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def backbones(root: Path, **size: int) -> dict[str, Path]:
    """BERT: plain, with a language-model head, with heads of one and two labels. ``size`` goes before ``SIZE``."""
    torch.manual_seed(7)
    config = BertConfig(vocab_size=5 + len(WORDS), max_position_embeddings=64, **{**SIZE, **size})
    tokenizer = word_tokenizer()
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


def cross(backbone: dict[str, Path], path: Path) -> str:
    CrossEncoder(str(backbone["label"]), device="cpu").save_pretrained(str(path))
    return str(path)


def sparse(backbone: dict[str, Path], path: Path) -> str:
    modules = [Transformer(str(backbone["language"]), transformer_task="fill-mask"), SpladePooling("max")]
    SparseEncoder(modules=modules, device="cpu").save_pretrained(str(path))
    return str(path)


def late(backbone: dict[str, Path], path: Path, *, expanded: bool) -> str:
    """Late interaction; ``expanded``: with query expansion, a prefix, lengths by side and a skip list."""
    torch.manual_seed(8)
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


def clip(path: Path) -> str:
    """Images and texts in one space, 16 wide: a plain CLIP checkpoint, which ``SentenceTransformer`` loads."""
    torch.manual_seed(9)
    tokenizer = word_tokenizer()
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    shared = {**SIZE, "initializer_factor": 8.0}
    words = {"vocab_size": len(tokenizer), "max_position_embeddings": 64, "eos_token_id": 3}
    config = CLIPConfig(
        text_config={**shared, **words}, vision_config={**shared, "image_size": 28, "patch_size": 14}, projection_dim=16
    )
    CLIPModel(config).save_pretrained(path)
    square = {"height": 28, "width": 28}
    pictures = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=square)
    CLIPProcessor(image_processor=pictures, tokenizer=tokenizer).save_pretrained(path)
    return str(path)

"""Which of our engines serves an adapter path of a model file, and which paths nothing here can serve, and why."""

from __future__ import annotations

from collections.abc import Collection

from engines.adapters import IMPLEMENTED
from engines.protocol.catalog import EngineKind

NATIVE: dict[str, EngineKind] = {
    "engines.adapters.vllm": "vllm",
    "engines.adapters.vllm.pooling": "vllm_pooling",
    "engines.adapters.retrieval.sentence_transformer": "sentence_transformer",
    "engines.adapters.retrieval.sparse_encoder": "sparse_encoder",
    "engines.adapters.retrieval.multi_vector_encoder": "multi_vector_encoder",
    "engines.adapters.retrieval.cross_encoder": "cross_encoder",
    "engines.adapters.transcription": "whisper",
    "engines.adapters.extraction.spacy": "spacy",
    "engines.adapters.extraction.gliner": "gliner",
    "engines.adapters.extraction.nli": "nli",
}
"""Our own adapter paths (the part before ``:``)."""

_BY_OUTPUT = "by output"
"""A family of encoders whose engine follows from what the model puts out."""

_SIE: dict[str, EngineKind | str] = {
    "sglang.generation": "vllm",
    "gliner": "gliner",
    "gliner_bi": "gliner",
    "whisper": "whisper",
    "nli_classification": "nli",
    "nli_classification_flash": "nli",
    "splade_flash": "sparse_encoder",
    "gte_sparse_flash": "sparse_encoder",
    "colbert": "multi_vector_encoder",
    "colbert_modernbert_flash": "multi_vector_encoder",
    "colbert_rotary_flash": "multi_vector_encoder",
    "sentence_transformer": _BY_OUTPUT,
    "candle": _BY_OUTPUT,
    "bert_flash": _BY_OUTPUT,
    "qwen2_flash": _BY_OUTPUT,
    "modernbert_flash": _BY_OUTPUT,
    "xlm_roberta_flash": _BY_OUTPUT,
    "rope_flash": _BY_OUTPUT,
    "nomic_flash": _BY_OUTPUT,
    "pytorch_embedding": _BY_OUTPUT,
    "sglang.embedding": _BY_OUTPUT,
    "sglang.gemma": _BY_OUTPUT,
    "clip": "sentence_transformer",
    "siglip": "sentence_transformer",
    "bge_m3_flash": "sentence_transformer",
    "bge_m3_flag": "sentence_transformer",
    "bert_flash_cross_encoder": "cross_encoder",
    "qwen2_flash_cross_encoder": "cross_encoder",
    "jina_flash_cross_encoder": "cross_encoder",
    "modernbert_flash_cross_encoder": "cross_encoder",
}
"""Module of an SIE adapter, without its package, to the engine that does the same here."""

_REFUSED: dict[str, str] = {
    "gliclass": "the GLiClass architecture has no engine here yet",
    "gliner2": "the GLiNER2 architecture has no engine here yet",
    "gliner2.classification": "the GLiNER2 architecture has no engine here yet",
    "glirel": "the GLiREL architecture has no engine here yet; relations come from joint GLiNER models",
    "florence2": "document vision has no engine here yet",
    "donut": "document vision has no engine here yet",
    "sglang_vision_extract": "document vision has no engine here yet",
    "paddleocr_vl": "document vision has no engine here yet",
    "glm_ocr": "document vision has no engine here yet",
    "lighton_ocr": "document vision has no engine here yet",
    "mineru_vl": "document vision has no engine here yet",
    "docling": "document conversion has no engine here yet",
    "grounding_dino": "object detection has no engine here yet",
    "owlv2": "object detection has no engine here yet",
    "nemo_colembed": "late interaction over images has no engine here yet",
    "colsmol": "late interaction over images has no engine here yet",
    "colpali": "late interaction over images has no engine here yet",
    "colqwen2": "late interaction over images has no engine here yet",
    "colqwen3": "late interaction over images has no engine here yet",
    "st_sparse_vision": "sparse encoding of images has no engine here yet",
    "qwen3_vl_reranker": "reranking of images has no engine here yet",
    "qwen3_vl_embedding": "image and text embedding has no engine here yet",
    "stablebridge_pruner": "context pruning has no engine here yet",
    "fake": "a test double is never served",
}

_VLLM_POOLS = {
    "sparse": "sparse vectors are engines.adapters.retrieval.sparse_encoder's",
    "multivector": "token vectors are engines.adapters.retrieval.multi_vector_encoder's",
    "image": "images are engines.adapters.retrieval.sentence_transformer's",
    "audio": "nothing here makes vectors or scores of it",
    "video": "nothing here makes vectors or scores of it",
    "document": "nothing here makes vectors or scores of it",
    "generate": "to generate is engines.adapters.vllm's, in an entry of its own",
    "extract": "to extract is engines.adapters.vllm's, in an entry of its own",
}
"""What an entry may ask for and vLLM's pooling engine does not do, and where it is done."""

_PACKAGES = ("sie_server.adapters.", "sie_server_rust.adapters.")


class Unservable(ValueError):
    """No engine here runs that adapter path; the message says why."""


def module_of(adapter_path: str) -> str:
    """The module part of ``package.module:Class``."""
    return adapter_path.partition(":")[0]


def engine_for(
    adapter_path: str, tasks: Collection[str], outputs: Collection[str], inputs: Collection[str]
) -> EngineKind:
    """The engine for an adapter path of a model with these tasks, vector kinds and kinds of input.

    Raises:
        Unservable: none fits, or the one that fits is not built yet or does not do one of these.
    """
    kind = _kind(adapter_path, tasks, outputs)
    if kind not in IMPLEMENTED:
        raise Unservable(f"adapter {adapter_path!r} needs the engine {kind!r}, which is not built yet")
    if kind == "vllm_pooling":
        _check_pooling(adapter_path, {*tasks, *outputs, *inputs})
    if module_of(adapter_path) == "engines.adapters.vllm" and not {"generate", "extract"} & set(tasks):
        raise Unservable(
            f"adapter {adapter_path!r} generates; vLLM's vectors and scores are engines.adapters.vllm.pooling's"
        )
    return kind


def _check_pooling(adapter_path: str, asked: Collection[str]) -> None:
    """Refuse what is asked of vLLM's pooling engine and is done elsewhere, or nothing that it does."""
    for what, where in _VLLM_POOLS.items():
        if what in asked:
            raise Unservable(f"adapter {adapter_path!r} does not do {what!r}: {where}")
    if not {"dense", "score"} & set(asked):
        raise Unservable(f"adapter {adapter_path!r}: the model names no dense vectors and no scores")


def known_modules() -> list[str]:
    """Every adapter module that some engine serves: what the default bundle lists."""
    spellings = [f"sie_server.adapters.{name}{tail}" for name in _SIE for tail in ("", ".adapter")]
    return sorted([*NATIVE, *spellings, "sie_server_rust.adapters.candle"])


def _kind(adapter_path: str, tasks: Collection[str], outputs: Collection[str]) -> EngineKind:
    module = module_of(adapter_path)
    if module in NATIVE:
        return NATIVE[module]
    for package in _PACKAGES:
        if module.startswith(package):
            name = module.removeprefix(package).removesuffix(".adapter")
            break
    else:
        raise Unservable(f"adapter {adapter_path!r} is unknown")
    if name in _REFUSED:
        raise Unservable(f"adapter {adapter_path!r}: {_REFUSED[name]}")
    if "generate" in tasks and "generation" not in name and name in ("sglang.gemma", "candle"):
        return "vllm"
    if adapter_path.endswith("SparseAdapter"):
        return "sparse_encoder"
    kind = _SIE.get(name)
    if kind is None:
        if "generation" in name:
            return "vllm"
        raise Unservable(f"adapter {adapter_path!r} is unknown")
    if kind != _BY_OUTPUT:
        return kind  # type: ignore[return-value]  # every other value of the table is an EngineKind
    return _by_output(adapter_path, tasks, outputs)


def _by_output(adapter_path: str, tasks: Collection[str], outputs: Collection[str]) -> EngineKind:
    if "dense" in outputs:
        return "sentence_transformer"
    if "sparse" in outputs:
        return "sparse_encoder"
    if "multivector" in outputs:
        return "multi_vector_encoder"
    if "score" in tasks:
        return "cross_encoder"
    raise Unservable(f"adapter {adapter_path!r}: the model names no vectors and no scores")

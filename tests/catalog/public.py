"""About a hundred model files as the public SIE catalog has them, made from the list of its fields and adapters.

Every field of the list is in some file, every adapter path is that of some file's default profile. ``EXPECTED`` says
of each adapter which engine serves it, or a word of the reason why none does.
"""

from __future__ import annotations

from typing import Any

import yaml

SIE = "sie_server.adapters."
DENSE = {"encode": {"dense": {"dim": 384}, "sparse": None, "multivector": None}, "score": None, "extract": None}
SPARSE = {"encode": {"dense": None, "sparse": {"dim": 30522}, "multivector": None}}
LATE = {"encode": {"dense": None, "sparse": None, "multivector": {"dim": 128}}}
ALL = {"encode": {"dense": {"dim": 1024}, "sparse": {"dim": 250002}, "multivector": {"dim": 1024}}}
SCORE = {"encode": None, "score": {}, "extract": None}
EXTRACT = {"encode": None, "score": None, "extract": {}}
GENERATE = {
    "generate": {
        "context_length": 32768,
        "max_output_tokens": 4096,
        "grammar_profile": "grammar",
        "prewarm_grammars": [{"name": "any", "kind": "json_schema", "value": {"type": "object"}}],
        "chat_template_kwargs": {"enable_thinking": False, "guardian_config": {"risk_name": "harm"}},
        "capabilities": {
            "code": True, "grammar": ["json_schema", "regex", "ebnf"], "guard": True, "sql": True, "streaming": True,
            "tools": True,
        },
    }
}  # fmt: skip

ST, SPARSE_ENGINE, LATE_ENGINE, CROSS = (
    "sentence_transformer",
    "sparse_encoder",
    "multi_vector_encoder",
    "cross_encoder",
)
EXPECTED: list[tuple[str, dict[str, Any], str]] = [
    ("sie_server_rust.adapters.candle:CandleEmbeddingAdapter", DENSE, ST),
    (f"{SIE}sglang.generation:SGLangGenerationAdapter", GENERATE, "vllm"),
    (f"{SIE}gliner:GLiNERAdapter", EXTRACT, "gliner"),
    (f"{SIE}splade_flash.adapter:SPLADEFlashAdapter", SPARSE, SPARSE_ENGINE),
    (f"{SIE}sentence_transformer:SentenceTransformerDenseAdapter", DENSE, ST),
    (f"{SIE}bert_flash:BertFlashAdapter", DENSE, ST),
    (f"{SIE}siglip.adapter:SiglipAdapter", DENSE, ST),
    (f"{SIE}bert_flash_cross_encoder:BertFlashCrossEncoderAdapter", SCORE, CROSS),
    (f"{SIE}nli_classification_flash:NLIClassificationFlashAdapter", EXTRACT, "nli"),
    (f"{SIE}sglang.embedding:SGLangEmbeddingAdapter", DENSE, ST),
    (f"{SIE}qwen2_flash_cross_encoder.adapter:Qwen2FlashCrossEncoderAdapter", SCORE, CROSS),
    (f"{SIE}gliclass:GLiClassAdapter", EXTRACT, "refused"),
    (f"{SIE}clip:CLIPAdapter", DENSE, ST),
    (f"{SIE}qwen2_flash:Qwen2FlashAdapter", DENSE, ST),
    (f"{SIE}sglang.gemma:SGLangGemmaAdapter", DENSE, ST),
    (f"{SIE}colbert_modernbert_flash.adapter:ColBERTModernBERTFlashAdapter", LATE, LATE_ENGINE),
    (f"{SIE}pytorch_embedding:PyTorchEmbeddingAdapter", DENSE, ST),
    (f"{SIE}florence2:Florence2Adapter", EXTRACT, "refused"),
    (f"{SIE}modernbert_flash:ModernBERTFlashAdapter", DENSE, ST),
    (f"{SIE}sglang_vision_extract.adapter:SGLangVisionExtractAdapter", EXTRACT, "refused"),
    (f"{SIE}colbert:ColBERTAdapter", LATE, LATE_ENGINE),
    (f"{SIE}xlm_roberta_flash:XLMRobertaFlashAdapter", DENSE, ST),
    (f"{SIE}nemo_colembed:NemoColEmbedAdapter", LATE, "refused"),
    (f"{SIE}grounding_dino.adapter:GroundingDINOAdapter", EXTRACT, "refused"),
    (f"{SIE}donut:DonutAdapter", EXTRACT, "refused"),
    (f"{SIE}gliner2.adapter:GLiNER2Adapter", EXTRACT, "refused"),
    (f"{SIE}gliner_bi:GLiNERBiAdapter", EXTRACT, "gliner"),
    (f"{SIE}owlv2.adapter:Owlv2Adapter", EXTRACT, "refused"),
    (f"{SIE}rope_flash:RoPEFlashAdapter", DENSE, ST),
    (f"{SIE}docling.adapter:DoclingAdapter", EXTRACT, "refused"),
    (f"{SIE}st_sparse_vision.adapter:SparseEncoderVisionAdapter", SPARSE, "refused"),
    (f"{SIE}qwen3_vl_reranker.adapter:Qwen3VLRerankerAdapter", SCORE, "refused"),
    (f"{SIE}qwen3_vl_embedding:Qwen3VLEmbeddingAdapter", DENSE, "refused"),
    (f"{SIE}whisper.adapter:WhisperAdapter", EXTRACT, "whisper"),
    (f"{SIE}jina_flash_cross_encoder:JinaFlashCrossEncoderAdapter", SCORE, CROSS),
    (f"{SIE}nomic_flash:NomicFlashAdapter", DENSE, ST),
    (f"{SIE}glirel:GLiRELAdapter", EXTRACT, "refused"),
    (f"{SIE}paddleocr_vl:PaddleOCRVLAdapter", EXTRACT, "refused"),
    (f"{SIE}stablebridge_pruner:StablebridgePrunerAdapter", SCORE, "refused"),
    (f"{SIE}gte_sparse_flash:GTESparseFlashAdapter", SPARSE, SPARSE_ENGINE),
    (f"{SIE}colsmol:ColSmolAdapter", LATE, "refused"),
    (f"{SIE}glm_ocr:GlmOcrAdapter", EXTRACT, "refused"),
    (f"{SIE}colqwen2:ColQwen2Adapter", LATE, "refused"),
    (f"{SIE}bge_m3_flash:BGEM3FlashAdapter", ALL, ST),
    (f"{SIE}bge_m3_flag:BGEM3FlagAdapter", ALL, ST),
    (f"{SIE}sentence_transformer:SentenceTransformerSparseAdapter", SPARSE, SPARSE_ENGINE),
    (f"{SIE}colbert_rotary_flash:ColBERTRotaryFlashAdapter", LATE, LATE_ENGINE),
    (f"{SIE}lighton_ocr.adapter:LightOnOCRAdapter", EXTRACT, "refused"),
    (f"{SIE}modernbert_flash_cross_encoder:ModernBertFlashCrossEncoderAdapter", SCORE, CROSS),
    (f"{SIE}gliner2.classification:GLiNER2ClassificationAdapter", EXTRACT, "refused"),
    (f"{SIE}colpali:ColPaliAdapter", LATE, "refused"),
    (f"{SIE}mineru_vl:MinerUVLAdapter", EXTRACT, "refused"),
    (f"{SIE}colqwen3:ColQwen3Adapter", LATE, "refused"),
    (f"{SIE}fake.adapter:FakeAdapter", DENSE, "refused"),
]
"""Adapter path, the tasks of its model, and the engine here."""

SAMPLES: dict[str, Any] = {"str": "text", "int": 3, "float": 0.5, "bool": True, "list": ["a", "b"], "NoneType": None}


def files(fields: list[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Model name -> text of its file and the expectation, of two files per adapter.

    Args:
        fields: Dotted path below ``profiles.<profile>.adapter_options`` and type, of every option in use.
    """
    made: dict[str, tuple[str, str]] = {}
    for variant in range(2):
        for index, (path, tasks, expected) in enumerate(EXPECTED):
            number = variant * len(EXPECTED) + index
            name = f"org{variant}/model-{index}"
            options: dict[str, Any] = {}
            # each option is in some file of an adapter that is served and in some of one that is not
            for option, kind in fields[number % 17 :: 17]:
                _put(options, option, SAMPLES[kind])
            document = {
                "sie_id": name,
                "hf_id": name,
                "hf_revision": f"{number:040x}",
                "hf_tokenizer_dependencies": dict.fromkeys(
                    ("microsoft/deberta-v3-large", "microsoft/mdeberta-v3-base"), "f" * 40
                ),
                "inputs": {"text": True, "image": False, "audio": False, "video": False, "document": variant == 1},
                "max_sequence_length": 512,
                "package_backed": False,
                "tasks": tasks,
                "profiles": {
                    "default": {
                        "adapter_path": path,
                        "max_batch_tokens": 16384,
                        "compute_precision": "float16" if variant else None,
                        "kv_budget_tokens": 65536,
                        "admission_enabled": True,
                        "adapter_options": options,
                    },
                    "grammar": {"extends": "default", "max_batch_tokens": 8192},
                },
            }
            made[name] = yaml.safe_dump(document, sort_keys=False), expected
    return made


def _put(options: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        options = options.setdefault(parent, {})
        if not isinstance(options, dict):
            return
    options.setdefault(last, value)

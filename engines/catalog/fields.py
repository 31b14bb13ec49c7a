"""The fields of model and bundle files, with their types. A field that is not here is an error, never skipped.

The names are those of the SIE catalog (version 0.6.26); those that are ours are marked. That a field is known here
does not mean that every engine takes it: an engine refuses an option that it has nothing for, when it loads.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
"""Field name to a tuple of types, a nested schema, ``MapOf``, or ``Optional`` around a schema."""


class MapOf:
    """A mapping with free keys: ``values`` is what each value must be."""

    def __init__(self, values: Any) -> None:
        self.values = values


class Nullable:
    """A mapping that may be written as null."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema


TEXT = (str,)
FLAG = (bool,)
COUNT = (int,)
NUMBER = (int, float)
LIST = (list,)
NULL_COUNT = (int, type(None))
NULL_TEXT = (str, type(None))
ANYTHING = (object,)

_MUVERA: Schema = {
    "center_tokens": FLAG,
    "final_projection_dim": NULL_COUNT,
    "num_repetitions": COUNT,
    "num_simhash_projections": COUNT,
    "projection_dim": NULL_COUNT,
}

VLLM: Schema = {
    "async_scheduling": FLAG,
    "block_size": COUNT,
    "chat_template": TEXT,
    "config_format": TEXT,
    "cpu_offload_gb": NUMBER,
    "data_parallel_size": COUNT,
    "distributed_executor_backend": TEXT,
    "enable_chunked_prefill": FLAG,
    "enable_expert_parallel": FLAG,
    "enable_prefix_caching": FLAG,
    "enforce_eager": FLAG,
    "generation_config": TEXT,
    "gpu_memory_utilization": NUMBER,
    "hf_overrides": MapOf(ANYTHING),
    "kv_cache_dtype": TEXT,
    "kv_cache_memory_bytes": COUNT,
    "limit_mm_per_prompt": MapOf(ANYTHING),
    "load_format": TEXT,
    "max_cpu_loras": COUNT,
    "max_lora_rank": COUNT,
    "max_loras": COUNT,
    "max_num_batched_tokens": COUNT,
    "max_num_seqs": COUNT,
    "mm_processor_kwargs": MapOf(ANYTHING),
    "model_impl": TEXT,
    "pipeline_parallel_size": COUNT,
    "quantization": TEXT,
    "scheduling_policy": TEXT,
    "seed": COUNT,
    "tensor_parallel_size": COUNT,
    "tokenizer": TEXT,
    "tokenizer_mode": TEXT,
}
"""Ours: vLLM's own engine arguments, under its names."""

LOADTIME: Schema = {
    **VLLM,
    "append_eos": FLAG,
    "attention_backend": TEXT,
    "attn_implementation": TEXT,
    "backend": TEXT,
    "base_processor_model": TEXT,
    "base_processor_revision": TEXT,
    "callers_mm_processor_kwargs": LIST,  # ours: options of the image processor that requests may set
    "causal": FLAG,
    "classification_task": TEXT,
    "classification_type": TEXT,
    "code_revision": TEXT,
    "config_kwargs": MapOf(ANYTHING),
    "default_instruction": TEXT,
    "default_labels": LIST,
    "default_prompt": TEXT,
    "default_task": TEXT,
    "dense_dim": COUNT,
    "dense_projection_path": TEXT,
    "disable_cuda_graph": FLAG,
    "doc_max_length": COUNT,
    "doc_prefix": TEXT,
    "doc_punctuation_skiplist": FLAG,
    "document_timeout_s": NUMBER,
    "dropout": NUMBER,
    "extra_env": MapOf(TEXT),
    "extra_launch_args": LIST,
    "fault_key": TEXT,
    "faults": {"oom_on_dispatch": COUNT, "slow_load_s": NUMBER},
    "forward_kwargs": MapOf(ANYTHING),
    "grammar_backend": TEXT,
    "guard": {"threshold": NUMBER},
    "hidden_size": COUNT,
    "input_format": TEXT,
    "intermediate_size": COUNT,
    "lora_paths": MapOf(TEXT),  # ours: served name to hub id or path
    "matmul_precision": TEXT,  # ours: inputs of the products of a float32 model on the CPU
    "max_concurrent_requests": COUNT,
    "max_file_size_bytes": COUNT,
    "max_len": COUNT,
    "max_num_pages": COUNT,
    "max_pending_tokens": COUNT,  # ours: tokens under way at which retrieval engines refuse more
    "max_seq_length": COUNT,
    "mem_fraction_static": NUMBER,
    "memory_footprint_bytes": COUNT,
    "meter_pages": FLAG,
    "mlx_repo": TEXT,
    "multi_label": FLAG,
    "muvera_config": _MUVERA,
    "no_token": TEXT,
    "normalize": FLAG,
    "open_clip_model_id": TEXT,
    "processor_use_fast": FLAG,
    "pruning_head_file": TEXT,
    "pruning_head_path": TEXT,
    "query_expansion": FLAG,
    "query_max_length": COUNT,
    "query_prefix": TEXT,
    "reasoning_parser": TEXT,
    "score_mode": TEXT,
    "score_strategy": TEXT,
    "score_threshold": NUMBER,
    "served_model_name": TEXT,
    "skip_special_tokens": FLAG,
    "speculative": {
        "algorithm": TEXT,
        "draft_model": TEXT,
        "eagle_topk": COUNT,
        "enabled": FLAG,
        "num_draft_tokens": COUNT,
        "num_steps": COUNT,
    },
    "speculative_needs_extra_buffer": FLAG,
    "system_prompt": TEXT,
    "task_labels": MapOf(TEXT),
    "task_prompts": MapOf(TEXT),
    "token_dim": COUNT,
    "tool_call_parser": TEXT,
    "trust_remote_code": FLAG,
    "use_model_encode": FLAG,
    "uses_legacy_transformers_cache": FLAG,
    "yes_token": TEXT,
}

RUNTIME: Schema = {
    "batch_size": COUNT,
    "box_threshold": NUMBER,
    "chat_template_kwargs": MapOf(ANYTHING),  # ours: as in tasks.generate, for one profile
    "default_instruction": TEXT,
    "default_sampling": {
        "frequency_penalty": NUMBER,
        "repetition_penalty": NUMBER,
        "min_new_tokens": COUNT,
        "presence_penalty": NUMBER,
        "temperature": NUMBER,
        "top_k": COUNT,
        "top_p": NUMBER,
    },
    "doc_template": TEXT,
    "first_chunk_timeout_s": NUMBER,
    "highlight_threshold": NUMBER,
    "hypothesis_template": TEXT,
    "instruction": TEXT,
    "inter_chunk_timeout_s": NUMBER,
    "lora_id": TEXT,
    "max_new_tokens": COUNT,
    "max_seq_length": COUNT,
    "merge_adjacent_entities": FLAG,
    "multi_label": FLAG,
    "muvera": Nullable(_MUVERA),
    "normalize": FLAG,
    "num_beams": COUNT,
    "ocr": FLAG,
    "output_dtype": TEXT,
    "output_similarity": MapOf(TEXT),
    "output_types": LIST,
    "overall_timeout_s": NUMBER,
    "pooling": TEXT,
    "precompute_labels": FLAG,
    "prune_threshold": NUMBER,
    "query_max_length": COUNT,
    "query_template": TEXT,
    "score_threshold": NUMBER,
    "stop_tokens": LIST,
    "task": TEXT,
    "text_threshold": NUMBER,
    "threshold": NUMBER,
    "vad_filter": FLAG,  # ours: leave out what is no speech before transcribing
}

_VECTOR = Nullable({"dim": COUNT})

PROFILE: Schema = {
    "adapter_options": Nullable({"loadtime": Nullable(LOADTIME), "runtime": Nullable(RUNTIME)}),
    "adapter_path": TEXT,
    "admission_enabled": FLAG,
    "compute_precision": NULL_TEXT,
    "extends": TEXT,
    "kv_budget_tokens": COUNT,
    "max_batch_tokens": COUNT,
}

MODEL: Schema = {
    "sie_id": TEXT,
    "hf_id": NULL_TEXT,
    "hf_revision": NULL_TEXT,
    "hf_tokenizer_dependencies": MapOf(TEXT),
    "source": TEXT,  # ours: package:NAME or a path, instead of a hub id
    "package_backed": FLAG,
    "pool": NULL_TEXT,
    "inputs": dict.fromkeys(("text", "image", "audio", "video", "document"), FLAG),
    "max_sequence_length": NULL_COUNT,
    "tasks": {
        "encode": Nullable({"dense": _VECTOR, "sparse": _VECTOR, "multivector": _VECTOR}),
        "score": Nullable({}),
        "extract": Nullable({}),
        "generate": Nullable(
            {
                "capabilities": {
                    "code": FLAG,
                    "grammar": LIST,
                    "guard": FLAG,
                    "sql": FLAG,
                    "streaming": FLAG,
                    "tools": FLAG,
                },
                "chat_template_kwargs": MapOf(ANYTHING),
                "context_length": COUNT,
                "grammar_profile": TEXT,
                "max_output_tokens": COUNT,
                "prewarm_grammars": LIST,
            }
        ),
    },
    "profiles": MapOf(PROFILE),
}

BUNDLE: Schema = {
    "name": TEXT,
    "priority": COUNT,
    "default": FLAG,
    "engine": TEXT,
    "platform": TEXT,
    "adapters": LIST,
    "deps": MapOf(ANYTHING),
}

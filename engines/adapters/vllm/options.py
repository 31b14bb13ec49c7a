"""From a profile's ``adapter_options.loadtime`` to vLLM's engine arguments. An option that means nothing is refused."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
from vllm import AsyncEngineArgs
from vllm.config import PoolerConfig

from ...protocol.catalog import ModelEntry, Profile
from ..base import EngineLoadError
from ..documents.reader import OPTIONS as DOCUMENT_OPTIONS
from ..retrieval.loading import device, precision
from .adapter_files import max_rank

log = logging.getLogger("sie.vllm")

CPU_KV_CACHE_BYTES = 1 << 30
CPU_SEQUENCES = 64
GPU_LORA_SLOTS = 8

# fmt: off
SAME_NAME = frozenset((
    "trust_remote_code", "code_revision", "tokenizer", "tokenizer_mode", "load_format", "config_format", "model_impl",
    "quantization", "kv_cache_dtype", "kv_cache_memory_bytes", "gpu_memory_utilization", "cpu_offload_gb", "block_size",
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel",
    "distributed_executor_backend", "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching",
    "enable_chunked_prefill", "enforce_eager", "async_scheduling", "scheduling_policy", "seed", "limit_mm_per_prompt",
    "mm_processor_kwargs", "hf_overrides", "generation_config", "max_loras", "max_cpu_loras", "max_lora_rank",
))
"""Options that are vLLM's own arguments."""

ELSEWHERE = frozenset((
    "callers_mm_processor_kwargs",
    "tool_call_parser", "reasoning_parser", "chat_template", "lora_paths", "max_concurrent_requests",
    "memory_footprint_bytes", "served_model_name", "speculative_needs_extra_buffer", *DOCUMENT_OPTIONS,
))
"""Options read by other parts, or that describe what vLLM finds out by itself."""

POOLING = frozenset((
    "trust_remote_code", "code_revision", "tokenizer", "tokenizer_mode", "load_format", "config_format", "model_impl",
    "quantization", "kv_cache_dtype", "kv_cache_memory_bytes", "gpu_memory_utilization", "cpu_offload_gb", "block_size",
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "distributed_executor_backend",
    "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching", "enable_chunked_prefill", "enforce_eager",
    "async_scheduling", "seed", "hf_overrides", "mem_fraction_static", "max_seq_length", "matmul_precision",
    "disable_cuda_graph", "attention_backend",
))
"""Options that mean something to a model that pools."""

POOLING_ELSEWHERE = frozenset((
    "normalize", "pooling", "default_instruction", "query_prefix", "doc_prefix", "query_max_length", "doc_max_length",
    "score_mode", "max_pending_tokens", "max_concurrent_requests", "memory_footprint_bytes", "served_model_name",
))
"""The same for what the pooling engine reads by itself."""
# fmt: on

GRAMMAR_BACKENDS = {"xgrammar": "xgrammar", "llguidance": "guidance", "guidance": "guidance", "outlines": "outlines"}

LAUNCH_FLAGS = {
    "--tp": "tensor_parallel_size",
    "--tp-size": "tensor_parallel_size",
    "--tensor-parallel-size": "tensor_parallel_size",
    "--pp-size": "pipeline_parallel_size",
    "--context-length": "max_model_len",
    "--max-running-requests": "max_num_seqs",
    "--chunked-prefill-size": "max_num_batched_tokens",
    "--quantization": "quantization",
    "--kv-cache-dtype": "kv_cache_dtype",
    "--dtype": "dtype",
}
"""Flags in ``extra_launch_args`` (SGLang's command line) that vLLM has too."""

ATTENTION = {"flashinfer": "FLASHINFER", "fa3": "FLASH_ATTN", "fa4": "FLASH_ATTN", "triton": "TRITON_ATTN"}
SPECULATION = {"EAGLE": "eagle", "EAGLE3": "eagle3", "NEXTN": "mtp", "MTP": "mtp", "NGRAM": "ngram"}


def chat_template(profile: Profile) -> str | None:
    """The template of ``loadtime.chat_template``: Jinja text, or the path of a file that holds it.

    Raises:
        EngineLoadError: the file cannot be read.
    """
    given = profile.loadtime.get("chat_template")
    if given is None or "{" in given:
        return given
    try:
        return Path(given).read_text()
    except OSError as error:
        raise EngineLoadError(
            f"chat_template: {error}", error_class="ChatTemplateUnreadable", permanent=True
        ) from error


def engine_args(entry: ModelEntry, profile: Profile, model: str) -> AsyncEngineArgs:
    """Arguments of ``AsyncLLM`` for this machine. The adapters of ``profile`` are folders.

    Raises:
        EngineLoadError: an option is unknown, or has a value that vLLM has nothing for.
    """
    gpu = torch.cuda.is_available()
    arguments = _of_machine(entry, profile, model, gpu) | {
        "max_model_len": entry.generation.context_length if entry.generation else None,
        "max_logprobs": 20,
        # white space between JSON tokens is where small models lose themselves
        "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
    }
    if profile.lora_paths:
        arguments |= {"enable_lora": True, "max_lora_rank": max_rank(profile.lora_paths)}
    for option, value in profile.loadtime.items():
        arguments |= _translated(option, value, gpu)
    if profile.lora_paths:
        arguments |= _slots(arguments, len(profile.lora_paths), gpu)
    reasoning = profile.loadtime.get("reasoning_parser")
    if reasoning:
        from .parsers import REASONING_NAMES

        arguments["reasoning_parser"] = REASONING_NAMES.get(reasoning, reasoning)
    return AsyncEngineArgs(**arguments)


def pooling_args(entry: ModelEntry, profile: Profile, model: str, pooling: str | None) -> AsyncEngineArgs:
    """Arguments of an ``AsyncLLM`` that pools; ``pooling`` is how, by vLLM's name, ``None``: the model's way.

    Raises:
        EngineLoadError: an option is unknown, means nothing to a model that pools, or has a value that vLLM has
            nothing for.
    """
    gpu = torch.cuda.is_available()
    arguments = _of_machine(entry, profile, model, gpu)
    arguments["runner"] = "pooling"
    # by itself vLLM takes float16, which CPUs compute at a third of bfloat16's speed
    arguments["dtype"] = str(precision(profile.compute_precision, device())).removeprefix("torch.")
    arguments["pooler_config"] = PoolerConfig(seq_pooling_type=pooling)
    if entry.max_sequence_length:
        # a text is not cut into several batches
        arguments["max_num_batched_tokens"] = max(profile.max_batch_tokens, entry.max_sequence_length)
    for option, value in profile.loadtime.items():
        if option in POOLING:
            arguments |= _translated(option, value, gpu)
        elif option not in POOLING_ELSEWHERE:
            raise _refusal(f"loadtime.{option} where a model pools")
    return AsyncEngineArgs(**arguments)


def _of_machine(entry: ModelEntry, profile: Profile, model: str, gpu: bool) -> dict[str, Any]:
    """What every engine on this machine has."""
    arguments: dict[str, Any] = {
        "model": model,
        "served_model_name": entry.name,
        "revision": None if Path(model).is_dir() else entry.revision,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if profile.compute_precision:
        arguments["dtype"] = profile.compute_precision
    return arguments if gpu else arguments | _on_cpu(profile)


def _on_cpu(profile: Profile) -> dict[str, Any]:
    """Eager: compiling a small model takes minutes on two cores and gains a quarter at one stream, nothing at 32."""
    arguments: dict[str, Any] = {"enforce_eager": True, "max_num_seqs": CPU_SEQUENCES}
    if not os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
        arguments["kv_cache_memory_bytes"] = CPU_KV_CACHE_BYTES
    if not profile.compute_precision and not torch.cpu._is_avx512_bf16_supported():
        arguments["dtype"] = "float32"  # bfloat16 without instructions for it is slower than float32
    return arguments


def _slots(arguments: dict[str, Any], adapters: int, gpu: bool) -> dict[str, Any]:
    """How many adapters may run at a time, and how many are kept in memory."""
    slots = arguments.get("max_loras", min(adapters, GPU_LORA_SLOTS))
    if not gpu:
        # vLLM's CPU kernels give requests without an adapter the last slot: it has to stay empty
        slots = max(slots, adapters + 1)
    # one that is read anew at a request ends the engine if its files are gone by then
    return {"max_loras": slots, "max_cpu_loras": max(slots, arguments.get("max_cpu_loras", adapters))}


def _translated(option: str, value: Any, gpu: bool) -> dict[str, Any]:
    """One option of the file as vLLM's arguments."""
    if option in SAME_NAME:
        return {option: value}
    if option in ELSEWHERE:
        return {}
    match option:
        case "mem_fraction_static":
            # a share of the device's memory; on the CPU the cache has a fixed size
            return {"gpu_memory_utilization": value} if gpu else {}
        case "max_seq_length":
            return {"max_model_len": value}
        case "matmul_precision":
            return _matmul(value, gpu)
        case "disable_cuda_graph":
            return {"enforce_eager": True} if gpu and value else {}
        case "attention_backend":
            return {"attention_backend": _known(ATTENTION, value, option)} if gpu else {}
        case "grammar_backend":
            backend = _known(GRAMMAR_BACKENDS, value, option)
            compact = backend in ("guidance", "xgrammar")
            return {"structured_outputs_config": {"backend": backend, "disable_any_whitespace": compact}}
        case "speculative":
            return _speculative(value)
        case "extra_launch_args":
            return _launch(value)
    raise _refusal(f"loadtime.{option}")


def _matmul(value: Any, gpu: bool) -> dict[str, Any]:
    """``bfloat16``: products of a float32 model with bfloat16 inputs, where the CPU has tiles for them."""
    if value not in ("bfloat16", "float32"):
        raise _refusal(f"loadtime.matmul_precision: {value!r}")
    if value == "float32" or gpu or not torch.cpu._is_amx_tile_supported():
        return {}
    return {"worker_extension_cls": "engines.adapters.vllm.matmul.Bfloat16Matmul"}


def _speculative(value: dict[str, Any]) -> dict[str, Any]:
    if not value.get("enabled", True):
        return {}
    method = _known(SPECULATION, str(value.get("algorithm", "")).upper(), "speculative.algorithm")
    tokens = value.get("num_steps") or value.get("num_draft_tokens") or 3
    config = {"method": method, "num_speculative_tokens": tokens}
    if value.get("draft_model"):
        config["model"] = value["draft_model"]
    unknown = set(value) - {"enabled", "algorithm", "draft_model", "num_steps", "num_draft_tokens", "eagle_topk"}
    if unknown:
        raise _refusal(f"loadtime.speculative.{min(unknown)}")
    return {"speculative_config": config}


def _launch(flags: list[Any]) -> dict[str, Any]:
    """SGLang's command line in vLLM's arguments: ``--flag value`` or ``--flag=value``."""
    words = [word for flag in flags for word in str(flag).split("=", 1)]
    arguments: dict[str, Any] = {}
    while words:
        flag = words.pop(0)
        if flag not in LAUNCH_FLAGS or not words:
            raise _refusal(f"loadtime.extra_launch_args: {flag}")
        value = words.pop(0)
        arguments[LAUNCH_FLAGS[flag]] = int(value) if value.lstrip("-").isdigit() else value
    return arguments


def _known(table: dict[str, str], value: Any, option: str) -> str:
    if value not in table:
        raise _refusal(f"loadtime.{option}: {value!r}")
    return table[value]


def _refusal(what: str) -> EngineLoadError:
    return EngineLoadError(f"vLLM has nothing for {what}", error_class="UnsupportedOption", permanent=True)

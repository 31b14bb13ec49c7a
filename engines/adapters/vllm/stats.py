"""vLLM's own statistics, summed up for heart-beats instead of in a registry that nobody in this process asks."""

from __future__ import annotations

from typing import Any

from vllm.config import VllmConfig
from vllm.v1.engine import FinishReason
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import FinishedRequestStats, IterationStats, SchedulerStats


class Stats(StatLoggerBase):  # type: ignore[misc]  # the type checker does not look into vllm
    """Counts what the engine tells after each step. Names are vLLM's where it has them."""

    def __init__(self, vllm_config: VllmConfig | None = None, engine_index: int = 0) -> None:
        self.samples = {
            "vllm_num_requests_running": 0.0,
            "vllm_num_requests_waiting": 0.0,
            "vllm_kv_cache_usage_perc": 0.0,
            "vllm_iterations_total": 0.0,
            "vllm_batch_requests_total": 0.0,
            "vllm_prompt_tokens_total": 0.0,
            "vllm_generation_tokens_total": 0.0,
            "vllm_num_preemptions_total": 0.0,
            "vllm_prefix_cache_queries_total": 0.0,
            "vllm_prefix_cache_hits_total": 0.0,
            "vllm_first_tokens_total": 0.0,
            "vllm_first_token_seconds_total": 0.0,
            "vllm_inter_tokens_total": 0.0,
            "vllm_inter_token_seconds_total": 0.0,
            "vllm_prompt_tokens_cached_total": 0.0,
            "vllm_mm_cache_queries_total": 0.0,
            "vllm_mm_cache_hits_total": 0.0,
            "vllm_requests_finished_total": 0.0,
            "vllm_request_queue_seconds_total": 0.0,
            "vllm_request_prefill_seconds_total": 0.0,
            "vllm_request_decode_seconds_total": 0.0,
            **{f"vllm_request_{reason!s}_total": 0.0 for reason in FinishReason},
        }

    def __call__(self, vllm_config: VllmConfig, engine_index: int = 0) -> Stats:
        """As the factory that vLLM asks for: one sum over all of its engines."""
        return self

    def record(
        self,
        scheduler_stats: SchedulerStats | None,
        iteration_stats: IterationStats | None,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        """One step of the engine."""
        samples = self.samples
        if scheduler_stats is not None:
            cache = scheduler_stats.prefix_cache_stats
            samples["vllm_num_requests_running"] = scheduler_stats.num_running_reqs
            samples["vllm_num_requests_waiting"] = scheduler_stats.num_waiting_reqs
            samples["vllm_kv_cache_usage_perc"] = scheduler_stats.kv_cache_usage
            samples["vllm_iterations_total"] += 1
            samples["vllm_batch_requests_total"] += scheduler_stats.num_running_reqs
            samples["vllm_prefix_cache_queries_total"] += cache.queries
            samples["vllm_prefix_cache_hits_total"] += cache.hits
        if iteration_stats is not None:
            firsts = iteration_stats.time_to_first_tokens_iter
            inters = iteration_stats.inter_token_latencies_iter
            samples["vllm_prompt_tokens_total"] += iteration_stats.num_prompt_tokens
            samples["vllm_generation_tokens_total"] += iteration_stats.num_generation_tokens
            samples["vllm_num_preemptions_total"] += iteration_stats.num_preempted_reqs
            samples["vllm_first_tokens_total"] += len(firsts)
            samples["vllm_first_token_seconds_total"] += sum(firsts)
            samples["vllm_inter_tokens_total"] += len(inters)
            samples["vllm_inter_token_seconds_total"] += sum(inters)
            samples["vllm_prompt_tokens_cached_total"] += iteration_stats.prompt_token_stats.cached_tokens
            for finished in iteration_stats.finished_requests:
                self._finished(finished)
        if mm_cache_stats is not None:
            samples["vllm_mm_cache_queries_total"] += mm_cache_stats.queries
            samples["vllm_mm_cache_hits_total"] += mm_cache_stats.hits

    def _finished(self, request: FinishedRequestStats) -> None:
        """One request that has ended: why, and where its time went."""
        samples = self.samples
        samples["vllm_requests_finished_total"] += 1
        samples[f"vllm_request_{request.finish_reason!s}_total"] += 1
        samples["vllm_request_queue_seconds_total"] += request.queued_time
        samples["vllm_request_prefill_seconds_total"] += request.prefill_time
        samples["vllm_request_decode_seconds_total"] += request.decode_time

    def log_engine_initialized(self) -> None:
        """Nothing to say."""

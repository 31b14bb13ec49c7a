"""What the generation engine tells of itself: vLLM's own statistics, summed up."""

from __future__ import annotations

import pytest

pytest.importorskip("vllm")

from vllm.v1.engine import FinishReason
from vllm.v1.metrics.stats import FinishedRequestStats, IterationStats, MultiModalCacheStats, SchedulerStats

from engines.adapters.vllm.stats import Stats


def step(*finished: FinishedRequestStats) -> IterationStats:
    made = IterationStats()
    made.num_generation_tokens = 3
    made.prompt_token_stats.total, made.prompt_token_stats.cached_tokens = 40, 16
    made.num_preempted_reqs = 1
    made.time_to_first_tokens_iter = [0.25]
    made.inter_token_latencies_iter = [0.5, 0.75]
    made.finished_requests = list(finished)
    return made


def test_steps_are_summed_up() -> None:
    stats = Stats()
    scheduled = SchedulerStats(num_running_reqs=2, num_waiting_reqs=5, kv_cache_usage=0.5)
    scheduled.prefix_cache_stats.queries, scheduled.prefix_cache_stats.hits = 40, 16
    images = MultiModalCacheStats()
    images.record(4, 3)
    done = FinishedRequestStats(FinishReason.STOP, queued_time=1.0, prefill_time=2.0, decode_time=4.0)
    cut = FinishedRequestStats(FinishReason.LENGTH, queued_time=0.5, prefill_time=0.5, decode_time=0.5)
    stats.record(scheduled, step(done), images)
    stats.record(scheduled, step(cut, cut))
    stats.record(None, None)
    seen = {name.removeprefix("vllm_"): value for name, value in stats.samples.items() if value}
    assert seen == {
        "num_requests_running": 2,
        "num_requests_waiting": 5,
        "kv_cache_usage_perc": 0.5,
        "iterations_total": 2,
        "batch_requests_total": 4,
        "prompt_tokens_total": 80,
        "prompt_tokens_cached_total": 32,
        "generation_tokens_total": 6,
        "num_preemptions_total": 2,
        "prefix_cache_queries_total": 80,
        "prefix_cache_hits_total": 32,
        "mm_cache_queries_total": 4,
        "mm_cache_hits_total": 3,
        "first_tokens_total": 2,
        "first_token_seconds_total": 0.5,
        "inter_tokens_total": 4,
        "inter_token_seconds_total": 2.5,
        "requests_finished_total": 3,
        "request_stop_total": 1,
        "request_length_total": 2,
        "request_queue_seconds_total": 2.0,
        "request_prefill_seconds_total": 3.0,
        "request_decode_seconds_total": 5.0,
    }


def test_every_way_to_end_has_its_count_from_the_start() -> None:
    assert {f"vllm_request_{reason}_total" for reason in ("stop", "length", "abort", "error")} <= Stats().samples.keys()

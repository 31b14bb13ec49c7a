"""Response headers that tell what a request took and what served it (contract M). Shared by all inference surfaces."""

from __future__ import annotations

from time import perf_counter

from engines.protocol.cluster import Answer
from engines.protocol.events import Completed, Timing
from generated.sie.interfaces import Context


def success_headers(
    context: Context, answer: Answer, completed: Completed, *, since: float | None = None
) -> dict[str, str]:
    """Headers of a 200 that is not a stream. Times are in milliseconds with one decimal.

    ``since`` is the ``perf_counter`` value at submission; without it the wait is the worker's own total. Request id
    and version headers are the server's, on every answer.
    """
    timing = completed.timing
    waited = timing.total_ms if since is None else (perf_counter() - since) * 1000.0
    headers = {
        "X-SIE-Worker": f"queue:{context.request_id}",
        "X-Queue-Publish-Time": f"{answer.publish_ms:.1f}",
        "X-Queue-Wait-Time": f"{waited:.1f}",
        "X-Queue-Time": f"{timing.queue_ms:.1f}",
        "X-Inference-Time": f"{timing.inference_ms:.1f}",
    }
    headers |= {name: f"{ms:.1f}" for name, ms in _stages(timing) if ms > 0}
    if completed.bundle_config_hash:
        headers["X-SIE-Model-Revision"] = completed.bundle_config_hash
    if completed.execution_identity:
        headers["X-SIE-Execution-Identity-SHA256"] = completed.execution_identity
    return headers


def _stages(timing: Timing) -> tuple[tuple[str, float], ...]:
    return (
        ("X-Tokenization-Time", timing.tokenization_ms),
        ("X-Postprocessing-Time", timing.postprocessing_ms),
        ("X-Payload-Fetch-Time", timing.payload_fetch_ms),
    )

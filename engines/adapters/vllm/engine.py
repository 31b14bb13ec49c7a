"""The engine: one ``AsyncLLM`` and the way of one work item through it."""

from __future__ import annotations

import asyncio
import logging
import time

from vllm.outputs import RequestOutput
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from ...protocol.catalog import ModelEntry, Profile
from ...protocol.events import FinishReason, Timing, Usage
from ...protocol.work import GenerateWork, Work
from ..base import EngineStatus, Reply, WorkError
from .options import engine_args, model_folder
from .prompts import Prompts
from .sampling import parameters, room_for_output

log = logging.getLogger("sie.vllm")

CLOSE_TIMEOUT = 8.0
FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "cancelled", "error": "error"}


class VllmEngine:
    """Serves one profile of a generation model."""

    def __init__(self, entry: ModelEntry, profile: Profile) -> None:
        self._entry = entry
        self._profile = profile
        self._running = 0

    async def load(self) -> None:
        model = await asyncio.to_thread(model_folder, self._profile)
        arguments = engine_args(self._entry, self._profile, model)
        self._llm = await asyncio.to_thread(AsyncLLM.from_engine_args, arguments, usage_context=UsageContext.ENGINE_CONTEXT)
        config = self._llm.model_config
        self._context_length = config.max_model_len
        self._vocabulary = config.get_vocab_size()
        self._prompts = Prompts(self._entry, self._llm.renderer, self._context_length)

    async def run(self, work: Work, reply: Reply) -> None:
        if not isinstance(work, GenerateWork):
            raise WorkError("invalid_request", f"{self._entry.name!r} generates text; it cannot do this work")
        started = time.perf_counter()
        prompt, prompt_tokens = await self._prompts.render(work)
        max_tokens = room_for_output(work.sampling, self._entry, prompt_tokens, self._context_length)
        params = parameters(work, self._profile, max_tokens, self._vocabulary)
        reply.admitted(prompt_tokens=prompt_tokens)
        tokenized = time.perf_counter()
        first = 0.0
        completion_tokens = cached = 0
        self._running += 1
        try:
            async for output in self._llm.generate(prompt, params, work.request_id):
                first = first or time.perf_counter()
                completion_tokens += sum(len(choice.token_ids) for choice in output.outputs)
                cached = max(cached, output.num_cached_tokens or 0)
                self._send(output, reply)
        finally:
            self._running -= 1
        done = time.perf_counter()
        reply.completed(
            usage=Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, cached_tokens=cached),
            timing=Timing(
                tokenization_ms=(tokenized - started) * 1e3,
                inference_ms=(done - tokenized) * 1e3,
                ttft_ms=(first - started) * 1e3,
                total_ms=(done - started) * 1e3,
            ),
        )

    def _send(self, output: RequestOutput, reply: Reply) -> None:
        for choice in output.outputs:
            finish = FINISH.get(choice.finish_reason, "stop") if choice.finish_reason else None
            if choice.text or choice.token_ids or finish:
                reply.delta(
                    choice=choice.index, text=choice.text, tokens=len(choice.token_ids), finish_reason=finish
                )

    def status(self) -> EngineStatus:
        return EngineStatus(inflight_batches=min(1, self._running))

    async def close(self) -> None:
        llm = getattr(self, "_llm", None)
        if llm is not None:
            await asyncio.to_thread(llm.shutdown, CLOSE_TIMEOUT)

"""Beam search: vLLM's own, which drives the engine one token at a time from outside."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from vllm.entrypoints.generate.beam_search.online import BeamSearchOnlineMixin
from vllm.outputs import RequestOutput
from vllm.sampling_params import BeamSearchParams

from ...protocol.work import GenerateWork
from ..base import WorkError

MAX_WIDTH = 10
"""Half of the alternatives that the engine returns, which is how many each beam is continued with."""


class BeamSearch(BeamSearchOnlineMixin):  # type: ignore[misc]  # vLLM's classes have no types here
    """Searches with one engine."""

    def __init__(self, engine: Any) -> None:
        self.engine_client = engine
        self.renderer = engine.renderer

    async def outputs(self, work: GenerateWork, prompt: Any, max_tokens: int, adapter: Any) -> AsyncGenerator[Any]:
        """One output with ``work.sampling.n`` finished texts, the best first, like those of ``AsyncLLM.generate``.

        Raises:
            WorkError: the search is wider than the engine can make it.
        """
        sampling = work.sampling
        width = sampling.beam_width or sampling.n
        if width > MAX_WIDTH:
            raise WorkError("invalid_request", f"beams can be at most {MAX_WIDTH}; {width} were asked for", param="n")
        params = BeamSearchParams(
            beam_width=width,
            max_tokens=max_tokens,
            ignore_eos=sampling.ignore_eos,
            temperature=0.0,
            length_penalty=sampling.length_penalty,
            include_stop_str_in_output=sampling.include_stop_str_in_output,
            skip_special_tokens=sampling.skip_special_tokens,
        )
        found: RequestOutput
        async for found in self.beam_search(prompt, work.request_id, params, lora_request=adapter):
            for output in found.outputs:
                # a step's probabilities belong to the token that was taken, which an unshown end has none of
                output.token_ids = list(output.token_ids)
                output.logprobs = list(output.logprobs or ())[: len(output.token_ids)]
            found.outputs = found.outputs[: sampling.n]
            yield found

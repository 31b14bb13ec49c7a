"""The engine: one ``AsyncLLM`` and the way of one work item through it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import msgspec
from vllm.outputs import CompletionOutput
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM

from ...protocol.catalog import ModelEntry, Profile, variant
from ...protocol.events import GenerateOutput, Timing, Usage
from ...protocol.work import ExtractWork, GenerateWork, Grammar, Work
from ..base import EngineStatus, Reply, WorkError
from ..documents.reader import Reader
from ..files import model_files
from . import contradictions, extraction, processes
from .adapter_files import located
from .adapters import Adapters
from .beams import BeamSearch
from .faults import translated
from .grammar import Grammars
from .launch import dead, launched, stopped
from .logprobs import Vocabulary, of_prompt
from .options import chat_template, engine_args
from .outputs import Choice
from .parsers import Parsers, Plan
from .prompts import Prompts
from .sampling import parameters, room_for_output
from .stats import Stats

log = logging.getLogger("sie.vllm")
PATTERN = "guided_whitespace_pattern"


class Prepared:
    """A work item after all its checks: what ``AsyncLLM.generate`` is called with."""

    def __init__(self, prompt: Any, tokens: list[int], params: SamplingParams, adapter: Any, plan: Plan) -> None:
        self.prompt = prompt
        self.tokens = tokens
        self.params = params
        self.adapter = adapter
        self.plan = plan


class VllmEngine:
    """Serves one profile of a generation model."""

    def __init__(self, entry: ModelEntry, profile: Profile) -> None:
        self._entry = entry
        self._profile = profile
        self._name = variant(entry.name, profile.name)
        self._llm: AsyncLLM | None = None
        self._family = processes.Family()
        self._documents = Reader(profile)
        self._costs: dict[str, int] = {}
        self._cache_tokens = 0
        self._stats = Stats()

    async def load(self) -> None:
        """Start the engine's processes and load the weights.

        Raises:
            EngineLoadError: the model cannot be served.
        """
        model = await asyncio.to_thread(model_files, self._profile)
        template = chat_template(self._profile)
        log.info("model %s: loading %s", self._name, model)
        adapters = await asyncio.to_thread(located, self._profile.lora_paths)
        profile = msgspec.structs.replace(self._profile, lora_paths=adapters)
        arguments = partial(engine_args, self._entry, profile, model)
        self._llm = llm = await launched(self._name, arguments, self._stats, self._family)
        config, tokenizer = llm.model_config, llm.renderer.tokenizer
        loadtime = self._profile.loadtime
        tool_parser = loadtime.get("tool_call_parser")
        if tool_parser is None and self._entry.generation is not None and self._entry.generation.tools:
            tool_parser = "hermes"
        self._context_length = config.max_model_len
        cache = llm.vllm_config.cache_config
        self._cache_tokens = (cache.num_gpu_blocks or 0) * (cache.block_size or 0)
        self._vocabulary = Vocabulary(tokenizer, config.get_vocab_size())
        self._prompts = Prompts(self._entry, llm.renderer, template, config.max_model_len)
        self._priorities = llm.vllm_config.scheduler_config.policy == "priority"
        self._grammars = Grammars(llm.vllm_config, tokenizer)
        self._adapters = Adapters(adapters)
        await self._adapters.load(llm)
        self._parsers = Parsers(tokenizer, config, tool_parser, loadtime.get("reasoning_parser"))
        log.info("model %s: ready, %s, context of %d tokens", self._name, config.dtype, self._context_length)

    async def run(self, work: Work, reply: Reply) -> None:
        """Generate, or extract by generating. Cancelling the task aborts the generation within one step.

        Raises:
            WorkError: the work cannot be done.
        """
        if isinstance(work, ExtractWork):
            await self._extract(work, reply)
            return
        if not isinstance(work, GenerateWork):
            raise WorkError("invalid_request", f"model {self._entry.name!r} generates text and does nothing else")
        started = time.perf_counter()
        if self._engine.errored:
            raise dead(self._name)
        with self._translated(work):
            prepared = await self._prepare(work)
        begun = time.perf_counter()
        reply.admitted(prompt_tokens=len(prepared.tokens))
        self._costs[work.request_id] = len(prepared.tokens) + (prepared.params.max_tokens or 0) * prepared.params.n
        try:
            usage, first, output = await self._generate(work, prepared, reply)
        finally:
            del self._costs[work.request_id]
        done = time.perf_counter()
        timing = Timing(
            tokenization_ms=(begun - started) * 1e3,
            inference_ms=(done - begun) * 1e3,
            ttft_ms=(first - started) * 1e3,
            total_ms=(done - started) * 1e3,
        )
        reply.completed(usage=usage, timing=timing, output=output)

    async def _extract(self, work: ExtractWork, reply: Reply) -> None:
        wanted = await asyncio.to_thread(extraction.constraint, work)
        await self._grammars.compile(wanted.grammar, "params.output_schema")
        await extraction.extract(self, self._profile, self._documents, work, wanted, reply)

    async def _prepare(self, work: GenerateWork) -> Prepared:
        """Everything that can refuse the work, before it is admitted."""
        if work.priority and not self._priorities:
            message = "this model is not scheduled by priority (loadtime.scheduling_policy); only 0 is taken"
            raise WorkError("unsupported_field", message, param="priority")
        adapter = self._adapters.request(work.lora_adapter)
        plan = self._parsers.plan(work, self._prompts.template_kwargs(work))
        prompt, tokens = await self._prompts.render(work)
        source = "prompt" if work.messages is None else "messages"
        if not tokens:
            param = source if work.rendering.chat_template is None else "chat_template"
            raise WorkError("invalid_request", "the prompt is empty", param=param)
        max_tokens = room_for_output(work.sampling, self._entry, len(tokens), self._context_length, prompt=source)
        constraint = None
        if plan.forced:
            constraint = await self._grammars.compile(plan.grammar(), "tools")
        elif (calls := plan.strict_calls()) is not None:
            constraint = await self._grammars.compile(calls, "tools")
        elif work.grammar is not None:
            param = work.grammar.param or ("grammar" if work.messages is None else "response_format")
            constraint = await self._compiled(work.grammar, param)
        params = parameters(
            work,
            self._profile,
            max_tokens,
            self._vocabulary,
            constraint=constraint,
            skip_special_tokens=not plan.keeps_special_tokens,
            forced_call=plan.forced,
        )
        return Prepared(prompt, tokens, params, adapter, plan)

    async def _compiled(self, grammar: Grammar, param: str) -> StructuredOutputsParams:
        """The caller's grammar. What is at fault is the pattern of its white space if the rest compiles without it.

        Raises:
            WorkError: it cannot be enforced.
        """
        try:
            return await self._grammars.compile(grammar, param)
        except WorkError as error:
            if (rest := _without_pattern(grammar)) is None:
                raise
            await self._grammars.compile(rest, param)
            raise WorkError(error.code, error.message, param=PATTERN) from None

    async def _generate(
        self, work: GenerateWork, prepared: Prepared, reply: Reply
    ) -> tuple[Usage, float, GenerateOutput | None]:
        """Run the engine and send what it gives; return what was used, when the first output came, and the rest."""
        choices = [self._choice(index, work, prepared, reply) for index in range(work.sampling.n)]
        usage = Usage(prompt_tokens=len(prepared.tokens), images=len(work.images))
        generated = [0] * work.sampling.n
        first = 0.0
        constrained = prepared.params.structured_outputs is not None
        rest: GenerateOutput | None = None
        outputs = self._outputs(work, prepared)
        # closing the generator is what aborts the request when this task is cancelled
        with self._translated(work):
            async with contextlib.aclosing(outputs):
                async for output in outputs:
                    first = first or time.perf_counter()
                    if work.sampling.prompt_logprobs is not None and output.prompt_logprobs and rest is None:
                        rest = GenerateOutput(prompt_logprobs=of_prompt(output.prompt_logprobs))
                    usage.completion_tokens += sum(len(part.token_ids) for part in output.outputs)
                    usage.cached_tokens = max(usage.cached_tokens, output.num_cached_tokens or 0)
                    for index, part in _ranked(output.outputs, work.sampling.n, work.stream):
                        generated[index] += len(part.token_ids)
                        contradictions.check(work, part, generated=generated[index], constrained=constrained)
                        choices[index].take(part)
        return usage, first or time.perf_counter(), rest

    def _translated(self, work: GenerateWork) -> contextlib.AbstractContextManager[None]:
        return translated(self._engine, self._name, work.request_id, refusal="invalid_request")

    def _outputs(self, work: GenerateWork, prepared: Prepared) -> AsyncGenerator[Any]:
        """The outputs of the engine, or of a search with it."""
        if work.sampling.beam_width is not None:
            limit = prepared.params.max_tokens or 1
            return BeamSearch(self._engine).outputs(work, prepared.prompt, limit, prepared.adapter)
        constrained = prepared.params.structured_outputs is not None
        generated: AsyncGenerator[Any] = self._engine.generate(
            prepared.prompt,
            prepared.params,
            work.request_id,
            lora_request=prepared.adapter,
            priority=work.priority,
            # a constraint begins where the answer begins
            reasoning_ended=prepared.plan.answer_begins(prepared.tokens) if constrained else None,
            reasoning_parser_kwargs=prepared.plan.reasoning_kwargs if constrained else None,
        )
        return generated

    def _choice(self, index: int, work: GenerateWork, prepared: Prepared, reply: Reply) -> Choice:
        return Choice(
            index,
            reply,
            thinking=prepared.plan.thinking(prepared.tokens),
            tool_calls=prepared.plan.tool_calls(),
            vocabulary=self._vocabulary,
            top=work.sampling.logprobs,
            as_ids=work.sampling.tokens_as_ids,
            shows_special_tokens=not prepared.params.skip_special_tokens,
        )

    @property
    def _engine(self) -> AsyncLLM:
        assert self._llm is not None, "load() comes first"
        return self._llm

    def status(self) -> EngineStatus:
        """Requests the engine has and has not finished, and what its processes hold in memory."""
        return EngineStatus(
            queue_depth=int(self._stats.samples["vllm_num_requests_waiting"]),
            inflight_batches=1 if self._costs else 0,
            pending_cost=sum(self._costs.values()),
            memory_bytes=self._family.memory(),
            cache_tokens=self._cache_tokens,
            metrics=self._stats.samples,
        )

    async def close(self) -> None:
        """Stop the engine's processes; those that do not end are killed."""
        await self._documents.close()
        llm, self._llm = self._llm, None
        if llm is not None:
            await self._grammars.close()
        await stopped(llm, self._family)


def _without_pattern(grammar: Grammar) -> Grammar | None:
    """A schema without the pattern of its white space; ``None`` where it has none."""
    if grammar.kind != "json_schema":
        return None
    try:
        schema = json.loads(grammar.value)
    except ValueError:
        return None
    options = schema.pop("x-guidance", None) if isinstance(schema, dict) else None
    if not isinstance(options, dict) or "whitespace_pattern" not in options:
        return None
    return msgspec.structs.replace(grammar, value=json.dumps(schema))


def _ranked(outputs: list[CompletionOutput], n: int, stream: bool) -> list[tuple[int, CompletionOutput]]:
    """Outputs with the index of their choice: of more candidates than choices, the most likely ones."""
    if stream or len(outputs) <= n:
        return [(output.index, output) for output in outputs]
    best = sorted(outputs, key=lambda output: output.cumulative_logprob or 0.0, reverse=True)
    return list(enumerate(best[:n]))

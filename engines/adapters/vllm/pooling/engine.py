"""The engine: one ``AsyncLLM`` that pools, and the way of one work item through it. vLLM batches by itself."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vllm import PoolingParams
from vllm.v1.engine.async_llm import AsyncLLM

from ....protocol.catalog import ModelEntry, Profile, variant
from ....protocol.events import EncodeOutput, ItemError, Output, ScoreOutput, Timing, Usage
from ....protocol.work import EncodeWork, ScoreWork, Work
from ...base import EngineLoadError, EngineStatus, Reply, WorkError
from ...files import model_files
from ...retrieval.outputs import by_item, cosines, dense_output, faultless
from ...retrieval.texts import Task, Templates, Text, paired, plain_text_of, refuse_options
from ...retrieval.tokens import NO_LIMIT, NoRoom, Tokens
from ..faults import translated
from ..launch import dead, launched, stopped
from ..options import pooling_args
from ..processes import Family
from ..stats import Stats
from . import checkpoint

log = logging.getLogger("sie.vllm")

PENDING_BATCHES = 16
"""Batches' worth of tokens that may wait before new requests are refused."""

Row = NDArray[np.float32]
Finish = Callable[[list[Row]], Output]


class VllmPoolingEngine:
    """One profile of a model: dense vectors and the cosines between them, or a cross-encoder's logits."""

    def __init__(self, entry: ModelEntry, profile: Profile) -> None:
        self._entry = entry
        self._profile = profile
        self._name = variant(entry.name, profile.name)
        self._llm: AsyncLLM | None = None
        self._family = Family()
        self._stats = Stats()
        self._thread = ThreadPoolExecutor(1, "tokenize")
        self._limit = int(profile.loadtime.get("max_pending_tokens", PENDING_BATCHES * profile.max_batch_tokens))
        self._pending = 0
        self._requests = 0

    async def load(self) -> None:
        """Start the engine's processes and load the weights.

        Raises:
            EngineLoadError: the model cannot be served, or does not do what its entry says.
        """
        model = await asyncio.to_thread(model_files, self._profile)
        options = {**self._profile.loadtime, **self._profile.runtime}
        files = await asyncio.to_thread(checkpoint.read, model, self._entry.revision, options)
        log.info("model %s: loading %s", self._name, model)
        arguments = partial(pooling_args, self._entry, self._profile, model, files.pooling)
        self._llm = llm = await launched(self._name, arguments, self._stats, self._family)
        config = llm.model_config
        tokenizer: Any = llm.renderer.tokenizer
        try:
            tasks = await llm.get_supported_tasks()
            checkpoint.check(self._entry, tasks, width=config.embedding_size, labels=config.hf_config.num_labels)
            checkpoint.check_tokenizer(self._name, tokenizer)
        except EngineLoadError:
            await self.close()
            raise
        self._pairs = "embed" not in tasks
        self._tokens = Tokens(tokenizer)
        self._typed = "token_type_ids" in tokenizer.model_input_names
        self._lowercase = files.lowercase
        limits = [config.max_model_len, files.max_length, tokenizer.model_max_length]
        limits += [self._entry.max_sequence_length, self._profile.option("max_seq_length")]
        self._longest = min(int(limit) for limit in limits if limit)
        normalize = self._profile.option("normalize")
        self._normalize = files.normalized if normalize is None else bool(normalize)
        self._templates = Templates(self._profile, files.prompts, files.default_prompt)
        log.info("model %s: ready, %s, %d tokens", self._name, config.dtype, self._longest)

    async def run(self, work: Work, reply: Reply) -> None:
        """Encode or score. Cancelling the task aborts what vLLM has not run yet.

        Raises:
            WorkError: the work cannot be done.
        """
        if self._engine.errored:
            raise dead(self._name)
        if isinstance(work, EncodeWork):
            await self._encode(work, reply)
        elif isinstance(work, ScoreWork):
            await self._score(work, reply)
        else:
            raise WorkError("INVALID_INPUT", f"model {self._entry.name!r} does not do {type(work).__name__}")

    def status(self) -> EngineStatus:
        """Requests vLLM has and has not finished, and what its processes hold in memory."""
        return EngineStatus(
            queue_depth=int(self._stats.samples["vllm_num_requests_waiting"]),
            inflight_batches=1 if self._requests else 0,
            pending_cost=self._pending,
            memory_bytes=self._family.memory(),
            metrics=self._stats.samples,
        )

    async def close(self) -> None:
        """Stop the engine's processes; those that do not end are killed."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        llm, self._llm = self._llm, None
        await stopped(llm, self._family)

    # --- encode and score -------------------------------------------------------------------------------------------

    async def _encode(self, work: EncodeWork, reply: Reply) -> None:
        unknown = [kind for kind in work.output_types if kind != "dense"]
        if unknown or self._pairs:
            kind = unknown[0] if unknown else "dense"
            raise WorkError("INVALID_INPUT", f"model {self._entry.name!r} has no {kind} output", param="output_types")
        refuse_options(work.options, "params.options")
        task: Task | None = None if work.is_query is None else "query" if work.is_query else "document"
        errors: dict[int, ItemError] = {}
        texts: list[Text] = []
        for index, text in enumerate(map(plain_text_of, work.items)):
            if isinstance(text, ItemError):
                errors[index] = text
            else:
                texts.append(self._templates.apply(text, task, work.instruction))
        if not texts:
            reply.admitted()
            reply.completed(usage=Usage(), timing=Timing(), output=EncodeOutput(errors=errors))
            return

        def finish(rows: list[Row]) -> EncodeOutput:
            vectors, failed = by_item(iter(self._vectors(rows)), errors, len(work.items))
            output = dense_output(vectors, self._entry.dims["dense"], work)
            output.output_dtype = work.output_dtype
            output.errors = failed
            return output

        await self._submit(work.request_id, texts, finish, reply)

    async def _score(self, work: ScoreWork, reply: Reply) -> None:
        refuse_options(work.options, "options")
        read = faultless([plain_text_of(one) for one in (work.query, *work.items)], len(work.items))
        limit = work.max_sequence_length
        query = self._templates.apply(read[0], "query", work.instruction)
        if self._pairs:
            documents = (self._templates.apply(text, "document", None) for text in read[1:])
            pairs = [paired(query, document, limit) for document in documents]
            await self._submit(work.request_id, pairs, _logits, reply, limit)
            return
        inputs = [query, *(self._templates.apply(text, "document", None, limit=limit) for text in read[1:])]
        await self._submit(work.request_id, inputs, lambda rows: cosines(self._vectors(rows)), reply, limit)

    def _vectors(self, rows: Sequence[Row]) -> list[Row]:
        """Rows of the model as vectors of the entry's width."""
        matrix = np.stack(rows)[:, : self._entry.dims.get("dense")]
        if self._normalize:
            matrix = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
        return list(matrix)

    # --- vLLM -------------------------------------------------------------------------------------------------------

    async def _submit(
        self, request_id: str, texts: Sequence[Text], finish: Finish, reply: Reply, cap: int | None = None
    ) -> None:
        """Run ``texts`` and answer with what ``finish`` makes of their rows; ``cap`` is the request's own limit."""
        started = time.perf_counter()
        loop = asyncio.get_running_loop()
        try:
            encodings = await loop.run_in_executor(self._thread, self._tokenize, texts)
        except NoRoom as error:
            raise error.refusal(cap) from None
        tokens = sum(map(len, encodings))
        if self._pending >= self._limit:
            message = f"{self._pending} tokens are waiting already, the most is {self._limit}"
            raise WorkError("RESOURCE_EXHAUSTED", message, retry_after=5.0)
        reply.admitted(prompt_tokens=tokens)
        tokenized = time.perf_counter()
        self._pending += tokens
        self._requests += 1
        try:
            rows = await self._rows(request_id, encodings)
        finally:
            self._pending -= tokens
            self._requests -= 1
        pooled = time.perf_counter()
        output = finish(rows)
        done = time.perf_counter()
        timing = Timing(
            tokenization_ms=(tokenized - started) * 1e3,
            inference_ms=(pooled - tokenized) * 1e3,
            postprocessing_ms=(done - pooled) * 1e3,
            total_ms=(done - started) * 1e3,
        )
        reply.completed(usage=Usage(prompt_tokens=tokens), timing=timing, output=output)

    def _tokenize(self, texts: Sequence[Text]) -> list[Any]:
        if self._lowercase:
            texts = [_lowered(text) for text in texts]
        return self._tokens.encode(texts, [min(text.limit or NO_LIMIT, self._longest) for text in texts])

    async def _rows(self, request_id: str, encodings: Sequence[Any]) -> list[Row]:
        """The raw pooled output of each input."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._row(f"{request_id}.{index}", encoding))
                    for index, encoding in enumerate(encodings)
                ]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _row(self, request_id: str, encoding: Any) -> Row:
        prompt: Any = {"prompt_token_ids": encoding.ids}
        with translated(self._engine, self._name, request_id, refusal="INVALID_INPUT"):
            async for output in self._engine.encode(prompt, self._parameters(encoding), request_id):
                if output.error is not None:
                    raise WorkError("inference_error", f"the engine failed: {output.error}")
                row: Row = output.outputs.data.float().numpy().reshape(-1)
                return row
        raise WorkError("inference_error", "the engine ended without a result")

    def _parameters(self, encoding: Any) -> PoolingParams:
        """Raw rows: to cut and to normalise comes after, and the one sigmoid of a score is the handler's."""
        parameters = PoolingParams(task="classify" if self._pairs else "embed", use_activation=False)
        if self._pairs and self._typed:
            # where the second part begins
            types = encoding.type_ids
            parameters.extra_kwargs = {"compressed_token_type_ids": types.index(1) if 1 in types else len(types)}
        return parameters

    # --- private ----------------------------------------------------------------------------------------------------

    @property
    def _engine(self) -> AsyncLLM:
        assert self._llm is not None, "load() comes first"
        return self._llm


def _logits(rows: Sequence[Row]) -> ScoreOutput:
    """The logit of each pair; of two labels the log-odds of the second."""
    scores = [float(row[1]) - float(row[0]) if row.size == checkpoint.BINARY else float(row[0]) for row in rows]
    if not all(map(math.isfinite, scores)):
        raise WorkError("inference_error", "the model gave a score that is not finite")
    return ScoreOutput(scores=scores, kind="logit")


def _lowered(text: Text) -> Text:
    pair = None if text.pair is None else text.pair.lower()
    return replace(text, text=text.text.lower(), prompt=text.prompt.lower(), pair=pair)

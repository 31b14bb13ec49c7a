"""The common part of the retrieval engines: load, batch, encode, score."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from ...batching import Batcher, Limits
from ...protocol.catalog import ModelEntry, Profile
from ...protocol.events import EncodeOutput, ItemError, ScoreOutput, Timing, Usage
from ...protocol.work import EncodeWork, Item, ScoreWork, Work
from ..base import EngineLoadError, Reply, WorkError
from ..batched import BatchedEngine
from . import loading, options
from .outputs import by_item, faultless, finite
from .pictures import Picture, picture_of
from .runner import Runner
from .texts import Task, Templates, Text, plain_text_of, refuse_options
from .tokens import NoRoom

CPU_BATCH_TOKENS = 2048
"""Best on CPUs: activations of a larger batch leave the second-level cache (bench/embed_engine.py)."""

PENDING_BATCHES = 16
"""Batches' worth of tokens that may wait before new requests are refused."""


class RetrievalEngine(BatchedEngine):
    """One loaded model behind a batcher. Subclasses load the library's class and read its results."""

    outputs: ClassVar[tuple[str, ...]] = ()
    score_wants: ClassVar[frozenset[str]] = frozenset()
    own_options: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, entry: ModelEntry, profile: Profile) -> None:
        super().__init__(entry, profile)
        self.runner: Runner | None = None
        self.templates = Templates(profile, {}, None)

    async def load(self) -> None:
        """Load the weights on a thread of its own.

        Raises:
            EngineLoadError: the model cannot be served.
        """
        self.runner = await asyncio.to_thread(loading.loaded, self.entry.name, self._load)
        self._batcher = Batcher(self.runner, self._limits(), self.entry.name)
        self._batcher.start()

    async def run(self, work: Work, reply: Reply) -> None:
        """Encode or score.

        Raises:
            WorkError: the work cannot be done.
        """
        if isinstance(work, EncodeWork):
            await self._encode(work, reply)
        elif isinstance(work, ScoreWork):
            await self._score(work, reply)
        else:
            raise WorkError("INVALID_INPUT", f"model {self.entry.name!r} does not do {type(work).__name__}")

    async def close(self) -> None:
        """Stop the threads and free the weights."""
        await super().close()
        if self.runner is not None:
            self.runner.pictures.close()
        self.runner = None

    # --- for subclasses ---------------------------------------------------------------------------------------------

    def make(self) -> Runner:
        """Load the library's model; blocks."""
        raise NotImplementedError

    def facts(self, runner: Runner) -> dict[str, list[Any]]:
        """The values that are true of the model, by the names of ``options.FACTS``."""
        model = runner.model
        return {
            "append_eos": [False, options.ends_with_eos(model.tokenizer)],
            "causal": [options.is_causal(model)],
            "dense_dim": [self.entry.dims.get("dense")],
            "token_dim": [self.entry.dims.get("multivector")],
        }

    def output(self, rows: Sequence[Any], work: EncodeWork) -> EncodeOutput:
        """The rows of the items of ``work`` (``None`` where an item has an error) as vectors."""
        raise NotImplementedError

    def scores(self, rows: Sequence[Any]) -> ScoreOutput:
        """Scores from the rows of query and documents."""
        raise NotImplementedError

    def score_inputs(
        self, query: str | Picture, documents: Sequence[str | Picture], work: ScoreWork
    ) -> list[Text | Picture]:
        """Model inputs for scoring: the query, cut at the model's own limit only, then the documents."""

        def read(one: str | Picture, task: Task, instruction: str | None, limit: int | None) -> Text | Picture:
            if isinstance(one, Picture):
                return one
            return self.templates.apply(one, task, instruction, limit=limit, wants=self.score_wants)

        first = read(query, "query", work.instruction, None)
        return [first, *(read(one, "document", None, work.max_sequence_length) for one in documents)]

    def option(self, name: str) -> Any:
        """An adapter option of the profile, ``None`` when unset."""
        return self.profile.option(name)

    def max_length(self) -> int | None:
        """Tokens to which every input is cut, special ones included; the model's own limit holds as well."""
        limits = [self.entry.max_sequence_length, self.option("max_seq_length")]
        return min((int(limit) for limit in limits if limit), default=None)

    # --- private ----------------------------------------------------------------------------------------------------

    def _load(self) -> Runner:
        options.check(self.entry.name, self.profile, self.own_options)
        runner = self.make()
        options.check_facts(self.entry.name, self.profile, lambda: self.facts(runner))
        if "image" in self.entry.inputs and not runner.sees:
            message = f"{self.entry.name}: the entry says that it takes images, and the model has no image tower"
            raise EngineLoadError(message, error_class="InvalidConfig", permanent=True)
        model = runner.model
        self.templates = Templates(self.profile, model.prompts, model.default_prompt_name)
        tensors = [*model.parameters(), *model.buffers()]
        self.memory_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return runner

    def _limits(self) -> Limits:
        assert self.runner is not None
        most = self.profile.max_batch_tokens
        pending = int(self.profile.loadtime.get("max_pending_tokens", PENDING_BATCHES * most))
        if self.runner.device.type == "cpu":
            return Limits(min(most, CPU_BATCH_TOKENS), pending_tokens=pending, workers=loading.cores())
        return Limits(most, pending_tokens=pending)

    async def _encode(self, work: EncodeWork, reply: Reply) -> None:
        unknown = [kind for kind in work.output_types if kind not in self.outputs]
        if unknown:
            raise WorkError(
                "INVALID_INPUT", f"model {self.entry.name!r} has no {unknown[0]} output", param="output_types"
            )
        refuse_options(work.options, "params.options")
        task: Task | None = None if work.is_query is None else "query" if work.is_query else "document"
        wants = frozenset(work.output_types)
        errors: dict[int, ItemError] = {}
        inputs: list[Text | Picture] = []
        for index, item in enumerate(work.items):
            one = self._read(item, wants)
            if isinstance(one, ItemError):
                errors[index] = one
            elif isinstance(one, Picture):
                inputs.append(one)
            else:
                inputs.append(self.templates.apply(one, task, work.instruction, wants=wants))

        def finish(rows: list[Any]) -> EncodeOutput:
            good, failed = by_item(iter(rows), errors, len(work.items))
            output = self.output(good, work)
            output.output_dtype = work.output_dtype
            output.errors = failed
            return output

        if not inputs:
            reply.admitted()
            reply.completed(usage=Usage(), timing=Timing(), output=EncodeOutput(errors=errors))
            return
        try:
            await self.submit(inputs, finish, reply, images=_pictures(inputs))
        except NoRoom as error:
            raise error.refusal(None) from None

    async def _score(self, work: ScoreWork, reply: Reply) -> None:
        refuse_options(work.options, "options")
        read = [self._read(one, self.score_wants) for one in (work.query, *work.items)]
        needed: list[str | Picture] = faultless(read, len(work.items))
        inputs = self.score_inputs(needed[0], needed[1:], work)

        def finish(rows: list[Any]) -> ScoreOutput:
            return self.scores(faultless([finite(row) for row in rows], len(work.items)))

        try:
            await self.submit(inputs, finish, reply, images=_pictures(inputs))
        except NoRoom as error:
            raise error.refusal(work.max_sequence_length) from None

    def _read(self, item: Item, wants: frozenset[str]) -> str | Picture | ItemError:
        """What the model reads of an item; an image is only looked at when its turn comes."""
        assert self.runner is not None
        seen = self.runner.sees and item.images and item.document is None
        return picture_of(item, wants) if seen else plain_text_of(item)


def _pictures(inputs: Sequence[Text | Picture]) -> int:
    return sum(isinstance(one, Picture) for one in inputs)

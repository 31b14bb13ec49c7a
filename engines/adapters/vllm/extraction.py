"""Structured extraction: each item becomes a generation that its JSON Schema constrains."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, NoReturn

import jsonschema_rs

from ...protocol.catalog import Profile
from ...protocol.cost import EXTRACTED_TOKENS, SIDE_BY_SIDE
from ...protocol.events import ExtractOutput, FinishReason, Output, Timing, TokenLogprob, ToolCallDelta, Usage
from ...protocol.work import ExtractWork, GenerateWork, Grammar, Item, Sampling
from ..base import Engine, EngineDead, WorkError
from ..documents.reader import Reader
from .grammar import MAX_CHARACTERS

OPTIONS = frozenset(("max_new_tokens", "temperature", "seed"))
WHOLE = frozenset(("RESOURCE_EXHAUSTED", "cancelled", "transport_failure"))
"""Failures of an item that are none of its own: the work as a whole can be tried again."""

SYSTEM = (
    "Extract from the user's text what this JSON Schema describes. Answer with one JSON value that is valid by it, and "
    "with nothing else. Take every value from the text.\n\nJSON Schema:\n{schema}"
)


class Constraint:
    """An output schema: the grammar that the generation is held to, and the check of what came out."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Raises WorkError: it is no JSON Schema, or refers to something outside itself."""
        self.text = json.dumps(schema, ensure_ascii=False)
        if len(self.text) > MAX_CHARACTERS:
            raise _invalid("output_schema", f"is longer than {MAX_CHARACTERS} characters")
        self.grammar = Grammar("json_schema", self.text, strict=True)
        try:
            self._validator = jsonschema_rs.validator_for(schema, retriever=_refuse)
        except Exception as error:
            # the library has ValueError, ReferencingError and others without a common class
            why = getattr(error, "message", error)
            raise _invalid("output_schema", f"is no JSON Schema that can be used: {why}") from None

    def parsed(self, text: str) -> Any:
        """The value of a generated text.

        Raises:
            WorkError: ``inference_error``; it is no JSON, or not valid by the schema.
        """
        try:
            value = json.loads(text)
        except ValueError:
            raise WorkError("inference_error", "the model's answer is no JSON") from None
        error = next(self._validator.iter_errors(value), None)
        if error is not None:
            raise WorkError("inference_error", f"the model's answer is not valid by output_schema: {error.message}")
        return value


class Collected:
    """A ``Reply`` that keeps a generation's text."""

    def __init__(self) -> None:
        self.text = ""
        self.finish: FinishReason | None = None
        self.usage = Usage()
        self.timing = Timing()

    def admitted(self, *, prompt_tokens: int = 0) -> None:
        pass

    def delta(
        self,
        *,
        choice: int = 0,
        text: str = "",
        reasoning: str = "",
        tokens: int = 0,
        logprobs: list[TokenLogprob] | None = None,
        tool_calls: list[ToolCallDelta] | None = None,
        finish_reason: FinishReason | None = None,
    ) -> None:
        self.text += text
        self.finish = finish_reason or self.finish

    def completed(self, *, usage: Usage, timing: Timing, output: Output | None = None) -> None:
        self.usage, self.timing = usage, timing


def constraint(work: ExtractWork) -> Constraint:
    """What the request asks for, checked.

    Raises:
        WorkError: ``INVALID_INPUT``; there is no usable ``output_schema``, or there are parameters that mean nothing.
    """
    if work.output_schema is None:
        raise _invalid("output_schema", "is needed: this model extracts what a JSON Schema describes")
    if work.labels is not None:
        raise _invalid("labels", "mean nothing beside output_schema; put them into the schema")
    unknown = sorted(set(work.options) - OPTIONS)
    if unknown:
        raise _invalid(
            f"options.{unknown[0]}", f"is no option of this model; its options: {', '.join(sorted(OPTIONS))}"
        )
    return Constraint(work.output_schema)


async def extract(
    engine: Engine, profile: Profile, documents: Reader, work: ExtractWork, wanted: Constraint, reply: Any
) -> None:
    """Generate for the items, ``SIDE_BY_SIDE`` at a time. ``data`` of a result is valid by the schema; an item for
    which that failed has an ``error``. ``tokenization_ms`` and ``inference_ms`` are those of the slowest item.

    Raises:
        WorkError: the engine can do nothing for any item.
    """
    started = time.perf_counter()
    sampling = _sampling(work, profile)
    reply.admitted()
    turns = asyncio.Semaphore(SIDE_BY_SIDE)

    async def in_turn(item: Item, request_id: str) -> tuple[dict[str, Any], Collected]:
        async with turns:
            return await _one(engine, documents, work, item, request_id, wanted, sampling)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(in_turn(item, f"{work.request_id}.{index}")) for index, item in enumerate(work.items)
            ]
    except* WorkError as errors:
        raise _first(errors) from None
    results = [task.result() for task in tasks]
    usage, timing = Usage(), Timing()
    for _, done in results:
        usage.prompt_tokens += done.usage.prompt_tokens
        usage.completion_tokens += done.usage.completion_tokens
        usage.cached_tokens += done.usage.cached_tokens
        timing.tokenization_ms = max(timing.tokenization_ms, done.timing.tokenization_ms)
        timing.inference_ms = max(timing.inference_ms, done.timing.inference_ms)
    timing.total_ms = (time.perf_counter() - started) * 1e3
    reply.completed(usage=usage, timing=timing, output=ExtractOutput(items=[result for result, _ in results]))


async def _one(
    engine: Engine,
    documents: Reader,
    work: ExtractWork,
    item: Item,
    request_id: str,
    wanted: Constraint,
    sampling: Sampling,
) -> tuple[dict[str, Any], Collected]:
    done = Collected()
    text = await documents.text_of(item)
    if not isinstance(text, str):
        return _failed(text.code, text.message), done
    system = SYSTEM.format(schema=wanted.text)
    if work.instruction:
        system += f"\n\n{work.instruction}"
    generation = GenerateWork(
        request_id=request_id,
        model=work.model,
        profile=work.profile,
        messages=[{"role": "system", "content": system}, {"role": "user", "content": text}],
        sampling=sampling,
        grammar=wanted.grammar,
    )
    try:
        await engine.run(generation, done)
        if done.finish == "length":
            raise WorkError("inference_error", "the answer was not whole within max_new_tokens")
        return {"data": wanted.parsed(done.text)}, done
    except EngineDead:
        raise
    except WorkError as error:
        if error.code in WHOLE:
            raise
        code = "INVALID_INPUT" if error.code == "context_exceeded" else error.code
        return _failed(code, error.message), done


def _sampling(work: ExtractWork, profile: Profile) -> Sampling:
    """Greedy unless asked otherwise: what stands in a text is no matter of chance."""
    limit = work.options.get("max_new_tokens")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit < 2**31):
        raise _invalid("options.max_new_tokens", "must be a positive integer")
    temperature = work.options.get("temperature", 0.0)
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 <= temperature <= 2:
        raise _invalid("options.temperature", "must be a number from 0 to 2")
    seed = work.options.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**63):
        raise _invalid("options.seed", "must be an integer of 64 bits")
    return Sampling(
        max_tokens=limit or int(profile.runtime.get("max_new_tokens", EXTRACTED_TOKENS)),
        max_tokens_is_default=True,
        temperature=float(temperature),
        seed=seed,
    )


def _failed(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _invalid(field: str, message: str) -> WorkError:
    return WorkError("INVALID_INPUT", f"params.{field} {message}", param=f"params.{field}")


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside the schema, and nothing is fetched")


def _first(errors: BaseExceptionGroup[WorkError]) -> WorkError:
    """One failure for all; a dead engine goes first, the worker has to know of it."""
    flat: list[WorkError] = []
    for error in errors.exceptions:
        flat += [_first(error)] if isinstance(error, BaseExceptionGroup) else [error]
    return next((error for error in flat if isinstance(error, EngineDead)), flat[0])

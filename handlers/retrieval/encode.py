"""POST /v1/encode/{model}: dense, sparse and multivector encodings of a batch. Source: contract F.3, F.6."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar, cast, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from engines.protocol.catalog import Profile
from engines.protocol.events import EncodeOutput, SparseVector, Tensor, Timing
from engines.protocol.work import EncodeWork, OutputDtype, OutputType
from generated.sie import models
from generated.sie.interfaces import Context

from ..errors import Failure, InvalidInput
from ..surface import Surface
from . import replies, vectors
from .batch import batch_failure
from .calls import Target, resolve, run
from .items import given, items, options, take_flag, take_text

T = TypeVar("T")


class EncodeSurface(Surface):
    """The native encode operation."""

    async def proxy_encode(self, context: Context, model: str, body: models.EncodeRequest) -> bytes:
        """Encode a batch. Of a batch in which some items failed, the others are returned, in request order.

        Raises:
            Failure: by contract A.5.
        """
        params = given(body.params) or models.EncodeParams()
        tuning = options(params.options, "params.options")
        target = resolve(
            self.services, context, model, "encode", profile=take_text(tuning, "profile", "params.options")
        )
        promoted = take_text(tuning, "instruction", "params.options")
        instruction = given(params.instruction)
        _check_lora(tuning.get("lora"), target.profile)
        work = EncodeWork(
            **target.fields(context),
            items=items(body.items, target.model),
            output_types=_output_types(given(params.output_types), target),
            output_dtype=_output_dtype(given(params.output_dtype), tuning.pop("output_dtype", None), target.profile),
            instruction=promoted if instruction is None else instruction,
            is_query=take_flag(tuning, "is_query", "params.options"),
            options=tuning,
        )
        completed = await run(self.services, context, work, target)
        output = completed.output
        if not isinstance(output, EncodeOutput):
            raise _malformed("the worker sent no encodings")
        failure = batch_failure(output.errors, len(work.items), "items")
        if failure is not None:
            raise failure
        try:
            results = await _results(work, output, json=not replies.wants_msgpack(context))
        except ValueError as error:
            raise _malformed(str(error)) from None
        return replies.encode(
            context, {"model": target.model.name, "items": results, "timing": _timing(completed.timing)}
        )


def _output_types(asked: Sequence[OutputType] | None, target: Target) -> tuple[OutputType, ...]:
    """The output types asked for, else the profile's, else dense; without repetition.

    Raises:
        InvalidInput: the model does not offer one of them.
    """
    types: tuple[OutputType, ...] = tuple(
        dict.fromkeys(asked or target.profile.runtime.get("output_types") or ("dense",))
    )
    offered = target.model.dims
    for name in types:
        if name not in offered:
            raise InvalidInput(
                f"Model '{target.model.name}' does not offer output type '{name}'; it offers: {', '.join(offered)}",
                "params.output_types",
            )
    return types


def _output_dtype(param: OutputDtype | None, option: object, profile: Profile) -> OutputDtype:
    """``params.output_dtype``, else ``params.options.output_dtype``, else the profile's, else float32.

    Raises:
        InvalidInput: the option is not a dtype.
    """
    dtype = param or option or profile.runtime.get("output_dtype") or "float32"
    for known in get_args(OutputDtype):
        if dtype == known:
            return cast(OutputDtype, known)
    raise InvalidInput(f"params.options.output_dtype: unknown dtype {dtype!r}", "params.options.output_dtype")


def _check_lora(name: object, profile: Profile) -> None:
    if name is not None and name not in profile.lora_paths:
        raise Failure(
            400,
            "unknown_lora_adapter",
            f"Profile '{profile.name}' has no LoRA adapter {name!r}",
            param="params.options.lora",
        )


async def _results(work: EncodeWork, output: EncodeOutput, *, json: bool) -> list[dict[str, object]]:
    """One EncodeResult per item that worked, in request order. Values are arrays, or JSON text where ``json``.

    Raises:
        ValueError: the worker's answer lacks something asked for, has another shape, or is not finite.
    """
    good = [index for index in range(len(work.items)) if index not in output.errors]
    results: list[dict[str, object]] = [{} if work.items[i].id is None else {"id": work.items[i].id} for i in good]
    if "dense" in work.output_types:
        for result, values in zip(results, await _dense(output, work, good, json=json), strict=True):
            result["dense"] = {"dims": output.dense_dims, "dtype": output.output_dtype, "values": values}
    if "sparse" in work.output_types:
        for result, vector in zip(results, _chosen(output.sparse, good, len(work.items), "sparse"), strict=True):
            result["sparse"] = await _sparse(vector, json=json)
    if "multivector" in work.output_types:
        for result, tensor in zip(
            results, _chosen(output.multivector, good, len(work.items), "multivector"), strict=True
        ):
            result["multivector"] = await _multivector(tensor, output, json=json)
    return results


async def _dense(output: EncodeOutput, work: EncodeWork, good: list[int], *, json: bool) -> Sequence[object]:
    if output.dense is None:
        raise ValueError("the worker sent no dense vectors")
    rows = vectors.array(output.dense)
    if rows.ndim != 2 or len(rows) != len(work.items):
        raise ValueError(f"the worker sent dense vectors of shape {rows.shape} for {len(work.items)} items")
    if len(good) < len(rows):
        rows = rows[good]
    if not json:
        return list(vectors.finite(rows))
    return [msgspec.Raw(text) for text in await vectors.json_rows(rows)]


def _chosen(values: Sequence[T | None] | None, good: list[int], count: int, name: str) -> list[T]:
    """The values of the items that worked."""
    if values is None or len(values) != count:
        raise ValueError(f"the worker sent {0 if values is None else len(values)} {name} encodings for {count} items")
    chosen = [value for index in good if (value := values[index]) is not None]
    if len(chosen) != len(good):
        raise ValueError(f"the worker sent no {name} encoding for an item that worked")
    return chosen


async def _sparse(vector: SparseVector, *, json: bool) -> dict[str, object]:
    indices, values = vectors.array(vector.indices), vectors.array(vector.values)
    if indices.ndim != 1 or indices.shape != values.shape:
        raise ValueError("the worker sent a sparse vector whose indices and values differ in number")
    return {
        "dims": vector.dims,
        "dtype": "float16" if values.dtype == np.float16 else "float32",
        "indices": await _values(indices, json=json),
        "values": await _values(values, json=json),
    }


async def _multivector(tensor: Tensor, output: EncodeOutput, *, json: bool) -> dict[str, object]:
    tokens = vectors.array(tensor)
    if tokens.ndim != 2:
        raise ValueError(f"the worker sent a multivector of shape {tokens.shape}")
    return {
        "token_dims": output.token_dims,
        "num_tokens": len(tokens),
        "dtype": output.output_dtype,
        "values": await _values(tokens, json=json),
    }


async def _values(values: NDArray[np.generic], *, json: bool) -> object:
    if not json:
        return vectors.finite(values)
    await asyncio.sleep(0)  # a batch has thousands of these: others get their turn between them
    if values.ndim == 1:
        return msgspec.Raw(vectors.json_numbers(values))
    return msgspec.Raw(vectors.join(await vectors.json_rows(values)))


def _timing(timing: Timing) -> dict[str, float]:
    return {
        "total_ms": timing.total_ms,
        "queue_ms": timing.queue_ms,
        "tokenization_ms": timing.tokenization_ms,
        "inference_ms": timing.inference_ms,
        "postprocessing_ms": timing.postprocessing_ms,
    }


def _malformed(message: str) -> Failure:
    return Failure(500, "transport_failure", f"Malformed encode result: {message}", native="INTERNAL_SERVER_ERROR")

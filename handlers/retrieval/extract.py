"""POST /v1/extract/{model}: entities, relations, classifications and structured data. Source: contract F.5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engines.protocol.events import ExtractOutput
from engines.protocol.work import ExtractWork, Item
from generated.sie import models
from generated.sie.interfaces import Context

from ..errors import Failure, InvalidField, InvalidInput
from ..surface import Surface
from . import replies
from .calls import resolve, run
from .items import given, items, options, take_text

MAX_LABELS: Final = 1000


class ExtractSurface(Surface):
    """The native extract operation."""

    async def proxy_extract(self, context: Context, model: str, body: models.ExtractRequest) -> bytes:
        """Extract from a batch; one result per item in request order, an item's own ``error`` beside what it yielded.

        ``start`` and ``end`` of an entity are offsets in code points of the item's text.

        Raises:
            Failure: by contract A.5.
        """
        params = given(body.params) or models.ExtractParams()
        tuning = options(params.options, "params.options")
        target = resolve(
            self.services, context, model, "extract", profile=take_text(tuning, "profile", "params.options")
        )
        promoted = take_text(tuning, "instruction", "params.options")
        instruction = given(params.instruction)
        inputs = items(body.items, target.model)
        _refuse_images(inputs)
        work = ExtractWork(
            **target.fields(context),
            items=inputs,
            labels=_labels(given(params.labels)),
            output_schema=_schema(given(params.output_schema)),
            instruction=promoted if instruction is None else instruction,
            options=tuning,
        )
        completed = await run(self.services, context, work, target)
        output = completed.output
        if not isinstance(output, ExtractOutput) or len(output.items) != len(work.items):
            raise Failure(
                500,
                "transport_failure",
                "Malformed extract result: not one result per item",
                native="INTERNAL_SERVER_ERROR",
            )
        results = [
            _result(found, replies.item_id(item, index))
            for index, (found, item) in enumerate(zip(output.items, work.items, strict=True))
        ]
        return replies.encode(context, {"model": target.model.name, "items": results})


def _refuse_images(inputs: Sequence[Item]) -> None:
    """Every model extracts from text, also one that generates from images."""
    for index, item in enumerate(inputs):
        if item.images:
            path = f"items[{index}].images"
            raise InvalidInput(f"{path}: extraction reads text and documents, no images", path)


def _labels(labels: list[str] | None) -> list[str] | None:
    if labels is None:
        return None
    if len(labels) > MAX_LABELS:
        raise InvalidField(
            "params.labels", f"params.labels has {len(labels)} elements; at most {MAX_LABELS} are allowed"
        )
    for index, label in enumerate(labels):
        if not label.strip():
            raise InvalidField(f"params.labels[{index}]", f"params.labels[{index}] is blank")
    return labels


def _schema(schema: object) -> dict[str, Any] | None:
    if schema is None:
        return None
    if not isinstance(schema, dict) or not all(isinstance(key, str) for key in schema):
        raise InvalidField("params.output_schema", "params.output_schema must be an object")
    return schema


def _result(found: Mapping[str, Any], identifier: str) -> dict[str, object]:
    """An ExtractResult: the arrays always there, the rest where the engine gave it."""
    result: dict[str, object] = {"id": identifier}
    for name in ("entities", "relations", "classifications"):
        result[name] = found.get(name) or []
    for name in ("data", "error"):
        if found.get(name) is not None:
            result[name] = found[name]
    return result

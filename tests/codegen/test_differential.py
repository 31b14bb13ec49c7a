"""Bodies are decoded exactly when the document allows them.

The document meant is the generator's: the served one, widened where a generator overlay leaves a refusal to the
handler, who can say more than a decoder.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from codegen import config
from codegen.document import overlaid, read
from generated.sie import operations
from handlers.errors import InvalidField, UnsupportedField
from handlers.http.plan import Plan
from tests.codegen.instances import Instances, mutations

SOURCE = next(source for source in config.load(Path("pyproject.toml")) if source.package == "generated.sie")
SERVED: dict[str, Any] = read(Path(operations.DOCUMENT))
SCHEMAS: dict[str, Any] = overlaid(SERVED, list(SOURCE.generator_overlays))["components"]["schemas"]
BODIES = [operation for operation in operations.ALL if operation.body and not operation.body.multipart]
BOUNDS = {"int32": 2**31, "int64": 2**63}
LIMIT = 6000  # cases per operation


def bounded(node: Any) -> Any:
    """The schema with its integer formats as ranges, which is how the server reads them."""
    if isinstance(node, list):
        return [bounded(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: bounded(value) for key, value in node.items()}
    half = BOUNDS.get(node["format"]) if isinstance(node.get("format"), str) else None
    return {"allOf": [found, {"minimum": -half, "maximum": half - 1}]} if half else found


def is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def truth(name: str, schemas: dict[str, Any]) -> jsonschema_rs.Validator:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": f"#/components/schemas/{name}",
        "components": {"schemas": bounded(schemas)},
    }
    return jsonschema_rs.validator_for(schema, validate_formats=True, formats={"byte": is_base64})


def cases(name: str) -> list[Any]:
    valid = truth(name, SCHEMAS)
    source = Instances(SCHEMAS, seed=7)
    drawn = [instance for _ in range(80) if valid.is_valid(instance := source.draw({"$ref": name}))]
    drawn.sort(key=lambda instance: len(json.dumps(instance)))
    assert len(drawn) >= 10
    mutated = [case for instance in (*drawn[:3], *drawn[-2:]) for case in mutations(instance)]
    return drawn + source.random.sample(mutated, min(len(mutated), LIMIT))


def accepts(plan: Plan, media: str, raw: bytes) -> bool:
    with contextlib.suppress(InvalidField, UnsupportedField):
        plan.decode.decode(media, raw)
        return True
    return False


@pytest.mark.parametrize("operation", BODIES, ids=lambda operation: operation.id)
def test_a_json_body_is_taken_exactly_when_the_document_allows_it(operation: operations.Operation) -> None:
    name = operation.body.type.__name__
    plan = Plan(operation, SERVED["components"]["schemas"])
    valid = truth(name, SCHEMAS)
    wrong = []
    both = set()
    for case in cases(name):
        raw = json.dumps(case).encode()
        expected = valid.is_valid(json.loads(raw))
        both.add(expected)
        if accepts(plan, "application/json", raw) is not expected:
            wrong.append((expected, case))
    assert wrong == []
    assert both == {True, False}


@pytest.mark.parametrize(
    "operation", [o for o in BODIES if "application/msgpack" in o.body.media], ids=lambda operation: operation.id
)
@pytest.mark.parametrize("media", ["application/msgpack", "application/x-msgpack", "application/vnd.msgpack"])
def test_a_messagepack_body_is_taken_exactly_when_the_document_allows_it(
    operation: operations.Operation, media: str
) -> None:
    name = operation.body.type.__name__
    plan = Plan(operation, SERVED["components"]["schemas"])
    valid = truth(name, SCHEMAS)
    wrong = []
    for case in cases(name)[::5]:
        try:
            raw = msgspec.msgpack.encode(case)
        except OverflowError:
            continue  # MessagePack has no such integer
        if accepts(plan, media, raw) is not (expected := valid.is_valid(case)):
            wrong.append((expected, case))
    assert wrong == []


@pytest.mark.parametrize("operation", BODIES, ids=lambda operation: operation.id)
def test_the_generator_overlays_only_widen_what_is_served(operation: operations.Operation) -> None:
    name = operation.body.type.__name__
    served, generator = truth(name, SERVED["components"]["schemas"]), truth(name, SCHEMAS)
    assert [case for case in cases(name) if served.is_valid(case) and not generator.is_valid(case)] == []

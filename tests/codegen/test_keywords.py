"""Every keyword of a request's schema is enforced, by the struct or by the second pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from codegen.lowering import scalar
from handlers.errors import InvalidField, UnsupportedField
from handlers.http.plan import Plan
from tests.codegen.world import Package, small

OBJECT = {"type": "object"}
VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, -1, 1.0, 1.5, 0.1, 0.3, 2**31, 2**40, 2**70, 1e15),
    *("", "a", "b", "ab", "abc", "aé", "a\n", "x@y.z", "2024-01-31", "2024-13-31", "text", "number"),
    *([], [1], [1, 1], [1, 2], [1, 1.0], ["a"], ["a", 1], [1, "a"], [None], [[1]], [{}], [1, 2, 3]),
    *({}, {"a": 1}, {"a": "x"}, {"b": 1}, {"a": 1, "b": 1}, {"a": None}, {"A": 1}, {"a": 1, "b": 1, "c": 1}),
    *({"kind": "x", "a": 1}, {"kind": "y", "b": 1}, {"kind": "y", "a": 1}, {"kind": "z"}, {"a": {"a": 1}}),
    *({"7": 1}, {"77": "x"}, {"a": [1, 2]}, {"a": "ab"}, {"a": 5}, {"a": True}, {"a": 1.0}),
]
STRUCT = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TAGS = [
    {"type": "object", "required": ["kind"], "properties": {"kind": {"const": tag}, name: {"type": "integer"}}}
    for tag, name in (("x", "a"), ("y", "b"))
]
SCHEMAS: dict[str, Any] = {
    "anything": {},
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "string": {"type": "string"},
    "nullable": {"type": ["string", "null"]},
    "several types": {"type": ["string", "integer", "null"]},
    "several types with a bound": {"type": ["string", "integer"], "minimum": 2},
    "no type but a bound": {"minimum": 2},
    "minimum and maximum": {"type": "integer", "minimum": 1, "maximum": 2},
    "exclusive bounds": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1.5},
    "two bounds a side": {"type": "integer", "minimum": 1, "exclusiveMinimum": 1, "maximum": 3, "exclusiveMaximum": 4},
    "a multiple of an integer": {"type": "integer", "multipleOf": 2},
    "a multiple of a number": {"type": "number", "multipleOf": 0.1},
    "lengths": {"type": "string", "minLength": 1, "maxLength": 2},
    "a pattern": {"type": "string", "pattern": "^[a-z]+$"},
    "a pattern that Python lacks": {"type": "string", "pattern": r"^\p{L}+$"},
    "a format that is asserted": {"type": "string", "format": "date"},
    "an enum of strings": {"enum": ["a", "b"]},
    "an enum of integers": {"enum": [1, 2]},
    "an enum with null": {"type": ["string", "null"], "enum": ["a", None]},
    "an enum of booleans": {"enum": [False, None]},
    "an enum of everything": {"enum": ["a", 1, None, [1], {"a": 1}]},
    "a const": {"const": "a"},
    "a const number": {"const": 1.5},
    "a const null": {"const": None},
    "an array": {"type": "array", "items": {"type": "integer"}},
    "array lengths": {"type": "array", "minItems": 1, "maxItems": 2},
    "unique items": {"type": "array", "uniqueItems": True},
    "prefix items": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    "contains": {"type": "array", "contains": {"type": "string"}},
    "an array of arrays": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    "an object": OBJECT,
    "a struct": STRUCT,
    "a nullable struct": {**STRUCT, "type": ["object", "null"], "required": ["a"]},
    "required": {**STRUCT, "required": ["a"]},
    "required but not named": {**STRUCT, "required": ["c"]},
    "closed": {**STRUCT, "additionalProperties": False},
    "closed but for a pattern": {
        **STRUCT,
        "patternProperties": {"^c": {"type": "integer"}},
        "additionalProperties": False,
    },
    "closed and empty": {**OBJECT, "additionalProperties": False},
    "other members typed": {**STRUCT, "additionalProperties": {"type": "string"}},
    "a map": {**OBJECT, "additionalProperties": {"type": "integer"}},
    "a map of maps": {
        **OBJECT,
        "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "a nullable map": {"type": ["object", "null"], "additionalProperties": {"type": "integer"}},
    "a map of structs": {**OBJECT, "additionalProperties": STRUCT},
    "names of members": {**OBJECT, "propertyNames": {"pattern": "^[0-9]$"}},
    "names of typed members": {
        **OBJECT,
        "additionalProperties": {"type": "integer"},
        "propertyNames": {"maxLength": 1},
    },
    "names from an enum": {**OBJECT, "propertyNames": {"enum": ["a"]}},
    "patterns of members": {**OBJECT, "patternProperties": {"^a": {"type": "integer"}}},
    "counts of members": {**OBJECT, "minProperties": 1, "maxProperties": 2},
    "counts of a struct's members": {**STRUCT, "minProperties": 2},
    "dependent required": {**STRUCT, "dependentRequired": {"a": ["b"]}},
    "not": {"type": "string", "not": {"const": "a"}},
    "if": {**STRUCT, "if": {"required": ["a"]}, "then": {"required": ["b"]}},
    "one of apart": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    "one of overlapping": {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 2}]},
    "any of overlapping": {"anyOf": [{"type": "integer"}, {"type": "number"}]},
    "any of with bounds": {"anyOf": [{"type": "integer", "maximum": 1}, {"type": "integer", "minimum": 3}]},
    "one of arrays": {"oneOf": [{"type": "array", "items": {"type": t}} for t in ("integer", "string")]},
    "one of structs": {"oneOf": [{**STRUCT, "required": ["a"]}, {**STRUCT, "required": ["b"]}]},
    "one of a struct and a map": {"oneOf": [{**STRUCT, "required": ["a"]}, {**OBJECT, "maxProperties": 0}]},
    "one of null and a struct": {"oneOf": [{"type": "null"}, {**STRUCT, "required": ["a"]}]},
    "one of string and struct": {"oneOf": [{"type": "string"}, {**STRUCT, "required": ["a"]}]},
    "one of required": {**STRUCT, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "tagged": {"oneOf": [{"$ref": "#/components/schemas/TagX"}, {"$ref": "#/components/schemas/TagY"}]},
    "tagged with a discriminator": {
        "oneOf": [{"$ref": "#/components/schemas/TagX"}, {"$ref": "#/components/schemas/TagY"}],
        "discriminator": {"propertyName": "kind"},
    },
    "tagged or null": {
        "anyOf": [{"$ref": "#/components/schemas/TagX"}, {"$ref": "#/components/schemas/TagY"}, {"type": "null"}]
    },
    "all of one": {"allOf": [{"$ref": "#/components/schemas/TagX"}], "description": "d"},
    "tagged, one of them nullable": {
        "oneOf": [{"$ref": "#/components/schemas/TagX"}, {"$ref": "#/components/schemas/TagYOrNull"}]
    },
    "all of structs or null": {
        "type": ["object", "null"],
        "allOf": [{"$ref": "#/components/schemas/TagYOrNull"}, {**STRUCT, "type": ["object", "null"]}],
    },
    "all of a struct, closed": {"allOf": [STRUCT], "properties": {"c": {}}, "additionalProperties": False},
    "all of structs": {"allOf": [{"$ref": "#/components/schemas/TagX"}, STRUCT]},
    "all of scalars": {"allOf": [{"type": "integer"}, {"minimum": 2}]},
    "a reference with more": {"$ref": "#/components/schemas/Small", "minimum": 2},
    "a reference to a reference": {"$ref": "#/components/schemas/Alias"},
    "recursive": {"$ref": "#/components/schemas/Node"},
}
SHARED = {
    "TagX": TAGS[0],
    "TagY": TAGS[1],
    "TagYOrNull": {**TAGS[1], "type": ["object", "null"]},
    "Small": {"type": "integer", "maximum": 2},
    "Alias": {"$ref": "#/components/schemas/Small"},
    "Node": {
        "type": "object",
        "properties": {"a": {"oneOf": [{"$ref": "#/components/schemas/Node"}, {"type": "integer"}]}},
    },
}


def document() -> dict[str, Any]:
    """One operation for each schema as a whole body, and one for it as a member of a body."""
    found = small()
    template = found["paths"].pop("/things")["post"]
    found["components"]["schemas"] |= SHARED
    for index, schema in enumerate(SCHEMAS.values()):
        for name, body in (
            (f"Whole{index}", schema),
            (f"Member{index}", {"type": "object", "properties": {"m": schema}}),
        ):
            found["components"]["schemas"][name] = body
            content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
            found["paths"][f"/{name}"] = {
                "post": {**template, "operationId": name.lower(), "requestBody": {"required": True, "content": content}}
            }
    return found


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return Package(tmp_path_factory.mktemp("keywords"), document())


@pytest.mark.parametrize("place", ["Whole", "Member"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_keyword_is_enforced(package: Package, name: str, place: str) -> None:
    component = f"{place}{list(SCHEMAS).index(name)}"
    operation = package.operation(component)
    schemas = json.loads(Path(package.module("operations").DOCUMENT).read_text(encoding="utf-8"))["components"][
        "schemas"
    ]
    plan = Plan(operation, schemas)
    truth = jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{component}", "components": {"schemas": schemas}}, validate_formats=True
    )
    cases = VALUES if place == "Whole" else [*({"m": value} for value in VALUES), {}, {"n": 1}]
    wrong = []
    for case in cases:
        raw = json.dumps(case).encode()
        expected = truth.is_valid(json.loads(raw))
        try:
            decoded = plan.decode.decode("application/json", raw)
            taken = True
            kept = msgspec.to_builtins(decoded)
            if (
                place == "Whole"
                and "properties" not in json.dumps(schemas[component])
                and "$ref" not in json.dumps(SCHEMAS[name])
            ):
                assert kept == case
        except (InvalidField, UnsupportedField):
            taken = False
        if taken is not expected:
            wrong.append((expected, case))
    assert wrong == []


def test_structs_alone_enforce_what_they_can(package: Package) -> None:
    """The second pass is left to what needs it: the common keywords stay on the fast path."""
    slow = [name for index, name in enumerate(SCHEMAS) if package.operation(f"member{index}").body.schema is not None]
    assert slow == [
        "no type but a bound",
        "a multiple of a number",
        "a pattern that Python lacks",
        "a format that is asserted",
        "an enum of booleans",
        "an enum of everything",
        "a const number",
        "a const null",
        "unique items",
        "prefix items",
        "contains",
        "required but not named",
        "closed but for a pattern",
        "closed and empty",
        "other members typed",
        "names from an enum",
        "patterns of members",
        "counts of a struct's members",
        "dependent required",
        "not",
        "if",
        "one of overlapping",
        "any of overlapping",
        "any of with bounds",
        "one of arrays",
        "one of structs",
        "one of a struct and a map",
        "one of required",
        "all of one",
        "tagged, one of them nullable",
        "all of structs or null",
        "all of a struct, closed",
        "all of structs",
        "all of scalars",
        "a reference with more",
    ]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"exclusiveMinimum": -(2**40)}, {"minimum": -(2**31), "maximum": 2**31 - 1}),
        ({"exclusiveMaximum": 2**40}, {"minimum": -(2**31), "maximum": 2**31 - 1}),
        ({"exclusiveMinimum": 0}, {"exclusiveMinimum": 0, "maximum": 2**31 - 1}),
        ({"minimum": 1, "exclusiveMinimum": 0}, {"minimum": 1, "maximum": 2**31 - 1}),
    ],
)
def test_the_range_of_a_format_holds_beside_wider_bounds(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert scalar({"type": "integer", "format": "int32", **schema}, "integer") == expected

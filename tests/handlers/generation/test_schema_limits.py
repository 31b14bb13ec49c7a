"""Bounds of JSON Schemas and the inlining of their references."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.errors import Failure
from handlers.generation import schema_limits


def refused(schema: Any) -> tuple[str, str | None]:
    with pytest.raises(Failure) as caught:
        schema_limits.inline(schema, "s")
    return caught.value.code, caught.value.param


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def test_references_are_replaced() -> None:
    schema = {
        "$defs": {
            "point": {"type": "object", "properties": {"x": {"$ref": "#/$defs/number"}}},
            "number": {"type": "number"},
        },
        "type": "array",
        "items": {"$ref": "#/$defs/point", "description": "a point"},
    }
    assert schema_limits.inline(schema, "s") == {
        "type": "array",
        "items": {"type": "object", "properties": {"x": {"type": "number"}}, "description": "a point"},
    }


def test_constraints_beside_a_reference_hold_with_it() -> None:
    schema = {"definitions": {"a~b/c": {"type": "integer"}}, "$ref": "#/definitions/a~0b~1c", "minimum": 3}
    assert schema_limits.inline(schema, "s") == {"allOf": [{"type": "integer"}, {"minimum": 3}]}


def test_the_original_stays_as_it_was() -> None:
    schema = {"$defs": {"a": {}}, "properties": {"b": {"$ref": "#/$defs/a"}}}
    schema_limits.inline(schema, "s")
    assert schema == {"$defs": {"a": {}}, "properties": {"b": {"$ref": "#/$defs/a"}}}


@pytest.mark.parametrize("keyword", ["$dynamicRef", "if", "then", "else", "unevaluatedProperties", "dependentSchemas"])
def test_refused_keywords(keyword: str) -> None:
    assert refused({keyword: {}}) == ("unsupported_field", f"s.{keyword}")
    assert refused({"anyOf": [{}, {"items": {keyword: {}}}]}) == ("unsupported_field", f"s.anyOf[1].items.{keyword}")
    # names are free where no schema stands
    named = {"properties": {keyword: {"const": {keyword: 1}}}, "required": [keyword], "enum": [{keyword: {}}]}
    assert schema_limits.inline(named, "s") == named


@pytest.mark.parametrize(
    ("schema", "code", "param"),
    [
        ({"$ref": 1}, "invalid_request", "s.$ref"),
        ({"$ref": "#"}, "invalid_request", "s.$ref"),
        ({"$ref": "#/nowhere"}, "invalid_request", "s.$ref"),
        ({"allOf": [{"$ref": "#/allOf/7"}]}, "invalid_request", "s.allOf[0].$ref"),
        ({"$ref": "https://example.org/schema"}, "unsupported_field", "s.$ref"),
        ({"$ref": "#anchor"}, "unsupported_field", "s.$ref"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "invalid_request", "s.$ref"),
        (
            {
                "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}},
                "not": {"$ref": "#/$defs/a"},
            },
            "invalid_request",
            "s.not.items.$ref",
        ),
        ({"properties": {"a": 5}}, "invalid_request", "s.properties.a"),
        ({"items": "x"}, "invalid_request", "s.items"),
        ({"anyOf": [None]}, "invalid_request", "s.anyOf[0]"),
    ],
)
def test_what_is_no_schema(schema: Any, code: str, param: str) -> None:
    assert refused(schema) == (code, param)


def test_nesting() -> None:
    assert schema_limits.inline(nested(16), "s") == nested(16)
    assert refused(nested(17)) == ("invalid_request", "s")


def test_depth_of_what_is_no_schema() -> None:
    value: Any = 1
    for _ in range(200):
        value = [value]
    assert refused({"const": value}) == ("invalid_request", "s")


def test_nodes() -> None:
    assert refused({"enum": list(range(16_384))}) == ("invalid_request", "s")


@pytest.mark.parametrize("keyword", ["minItems", "maxItems", "minContains", "maxContains"])
@pytest.mark.parametrize("number", [16_384, 10**9, 2**63, 1e9])
def test_items_that_an_array_asks_for_count_as_nodes(keyword: str, number: float) -> None:
    assert refused({"type": "array", keyword: number}) == ("invalid_request", "s")
    assert refused({"anyOf": [{"type": "array", keyword: 9_000}] * 2}) == ("invalid_request", "s")
    fine = {"type": "array", keyword: 9_000}
    assert schema_limits.inline(fine, "s") == fine
    named = {"type": "object", "properties": {keyword: {"const": number}}}
    assert schema_limits.inline(named, "s") == named


def test_bytes() -> None:
    assert refused({"description": "x" * 65_536}) == ("invalid_request", "s")


def test_references_cannot_multiply_without_bound() -> None:
    laughs: dict[str, Any] = {"l0": {"type": "string"}}
    for level in range(1, 14):
        laughs[f"l{level}"] = {"anyOf": [{"$ref": f"#/$defs/l{level - 1}"}] * 4}
    assert refused({"$defs": laughs, "$ref": "#/$defs/l13"}) == ("invalid_request", "s")


leaves = st.sampled_from([{}, {"type": "integer"}, {"type": "string", "minLength": 2}, {"$ref": "#/$defs/n"}, True])
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a: {"items": a, "type": "array"}, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(lambda a: {"properties": {"k": a}, "required": ["k"]}, inner),
        st.builds(lambda a: {"not": a}, inner),
    ),
    max_leaves=6,
)
values = st.recursive(
    st.sampled_from([None, 1, "a", "abc", 1.5]),
    lambda inner: st.lists(inner, max_size=2) | st.builds(lambda a: {"k": a}, inner),
    max_leaves=4,
)


@settings(max_examples=300)
@given(schemas, values)
def test_an_inlined_schema_means_the_same(schema: Any, value: Any) -> None:
    root = {"$defs": {"n": {"type": "number"}}, "allOf": [schema]}
    inlined = schema_limits.inline(root, "s")
    assert jsonschema.Draft202012Validator(root).is_valid(value) == jsonschema.Draft202012Validator(inlined).is_valid(
        value
    )

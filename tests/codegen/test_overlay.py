"""OpenAPI Overlay 1.0."""

from __future__ import annotations

from typing import Any

import pytest

from codegen.overlay import OverlayError, apply

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {
        "/a": {"get": {"tags": ["x"], "parameters": [{"name": "p"}, {"name": "q"}, {"name": "r"}]}},
        "/b": {"get": {"tags": ["y"]}, "post": {"x-hidden": True}},
    },
}


def overlay(*actions: dict[str, Any]) -> dict[str, Any]:
    return {"overlay": "1.0.0", "info": {"title": "t", "version": "1"}, "actions": list(actions)}


def test_an_update_merges_objects_to_any_depth() -> None:
    changed = apply(DOCUMENT, overlay({"target": "$.paths['/a']", "update": {"get": {"summary": "s"}, "put": {}}}))
    assert changed["paths"]["/a"]["get"] == {**DOCUMENT["paths"]["/a"]["get"], "summary": "s"}
    assert changed["paths"]["/a"]["put"] == {}


def test_an_update_replaces_primitives() -> None:
    changed = apply(DOCUMENT, overlay({"target": "$", "update": {"openapi": "3.1.1"}}))
    assert changed["openapi"] == "3.1.1"


def test_an_update_of_a_whole_primitive_replaces_it() -> None:
    changed = apply(DOCUMENT, overlay({"target": "$.openapi", "update": "3.1.1"}))
    assert changed["openapi"] == "3.1.1"


def test_arrays_are_concatenated() -> None:
    changed = apply(DOCUMENT, overlay({"target": "$.paths['/a'].get", "update": {"tags": ["z"]}}))
    assert changed["paths"]["/a"]["get"]["tags"] == ["x", "z"]


def test_an_update_of_an_array_appends_its_value() -> None:
    changed = apply(DOCUMENT, overlay({"target": "$.paths['/a'].get.parameters", "update": {"name": "s"}}))
    assert [p["name"] for p in changed["paths"]["/a"]["get"]["parameters"]] == ["p", "q", "r", "s"]


def test_an_update_reaches_every_node_selected_and_shares_nothing_between_them() -> None:
    changed = apply(DOCUMENT, overlay({"target": "$.paths.*.get", "update": {"responses": {"200": {}}}}))
    changed["paths"]["/a"]["get"]["responses"]["200"]["description"] = "only here"
    assert changed["paths"]["/b"]["get"]["responses"] == {"200": {}}


def test_actions_are_applied_in_order_each_to_the_result_of_the_last() -> None:
    changed = apply(
        DOCUMENT,
        overlay(
            {"target": "$.paths['/a'].get", "update": {"x-new": {"n": 1}}},
            {"target": "$.paths['/a'].get['x-new']", "update": {"n": 2}},
        ),
    )
    assert changed["paths"]["/a"]["get"]["x-new"] == {"n": 2}


def test_remove_takes_keys_and_several_items_of_one_array() -> None:
    changed = apply(
        DOCUMENT,
        overlay(
            {"target": "$.paths.*[?@['x-hidden']]", "remove": True},
            {"target": "$.paths['/a'].get.parameters[?@.name != 'q']", "remove": True},
        ),
    )
    assert "post" not in changed["paths"]["/b"]
    assert changed["paths"]["/a"]["get"]["parameters"] == [{"name": "q"}]


def test_remove_wins_over_update_and_false_removes_nothing() -> None:
    both = apply(DOCUMENT, overlay({"target": "$.paths['/b']", "remove": True, "update": {"x": 1}}))
    assert "/b" not in both["paths"]
    kept = apply(DOCUMENT, overlay({"target": "$.paths['/b']", "remove": False}))
    assert kept == DOCUMENT


def test_the_document_given_is_left_as_it_is() -> None:
    before = repr(DOCUMENT)
    apply(DOCUMENT, overlay({"target": "$.paths", "update": {"/c": {}}}, {"target": "$.paths['/a']", "remove": True}))
    assert repr(DOCUMENT) == before


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"overlay": "2.0.0", "actions": [{}]}, "unsupported overlay version '2.0.0'"),
        ({"overlay": "1.0.0", "actions": []}, "an overlay has at least one action"),
        (overlay({"update": {}}), "actions[0]: target is missing"),
        (overlay({"target": "$", "updates": {}}), "actions[0]: unknown member 'updates'"),
        (overlay({"target": "$.paths['/z']", "update": {}}), "actions[0] $.paths['/z']: selects nothing"),
        (overlay({"target": "$", "remove": True}), "actions[0] $: the root cannot be removed"),
        (
            overlay({"target": "$.paths['/a'].get", "update": {"tags": "z"}}),
            "actions[0] $.paths['/a'].get/tags: cannot merge a primitive into an array",
        ),
        (
            overlay({"target": "$", "update": {"openapi": {"v": 1}}}),
            "actions[0] $/openapi: cannot merge an object into a primitive",
        ),
    ],
)
def test_an_overlay_that_does_not_fit_is_refused_by_its_action(broken: dict[str, Any], message: str) -> None:
    with pytest.raises(OverlayError) as caught:
        apply(DOCUMENT, broken)
    assert str(caught.value) == message


def test_a_malformed_path_is_refused_by_its_action() -> None:
    with pytest.raises(OverlayError, match=r"^actions\[0\] \$\.paths\[: "):
        apply(DOCUMENT, overlay({"target": "$.paths[", "update": {}}))


def test_stale_actions_are_reported_where_they_are_asked_for() -> None:
    stale: list[str] = []
    changed = apply(
        DOCUMENT,
        overlay({"target": "$.nothing", "update": {}}, {"target": "$", "update": {"x-y": 1}}),
        stale.append,
    )
    assert stale == ["actions[0] $.nothing"]
    assert changed["x-y"] == 1

"""What a new revision of a document changes for handlers."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from codegen import diff
from codegen.__main__ import main
from codegen.document import Document
from tests.codegen.world import answer, real_document, small

_ITEMS = [f"  + []: {kind} allowed" for kind in ("array", "boolean", "integer", "null", "number", "object")]


def compared(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return diff.report(diff.compare(Document(old), Document(new))).splitlines()


def changed(**schema: Any) -> list[str]:
    """Lines for a change of the member `name`, without its heading."""
    new = small()
    new["components"]["schemas"]["Thing"]["properties"]["name"] = schema
    return compared(small(), new)[1:]


def test_the_same_document_changes_nothing() -> None:
    assert compared(real_document(), real_document()) == ["no change for handlers"]


def test_prose_changes_nothing() -> None:
    assert changed(type="string", description="d", title="t", examples=["x"]) == []


@pytest.mark.parametrize(
    ("schema", "lines"),
    [
        ({"type": "integer"}, ["  + name: integer allowed", "  - name: string refused"]),
        ({"type": ["string", "null"]}, ["  + name: null allowed"]),
        ({"type": "string", "minLength": 1}, ["  - name: minLength none -> 1 (narrowed)"]),
        ({"type": "string", "pattern": "a"}, ['  ~ name: pattern none -> "a"']),
        ({"type": "string", "enum": ["a"]}, ['  - name: enum none -> ["a"] (narrowed)']),
        ({"type": "string", "not": {"const": "a"}}, ['  ~ name: not none -> {"const": "a"}']),
        ({"$ref": "#/components/schemas/Fault"}, ["  ~ name: type string -> Fault"]),
    ],
)
def test_a_change_of_a_member_is_told_as_wider_or_narrower(schema: dict[str, Any], lines: list[str]) -> None:
    assert changed(**schema) == lines


def test_the_other_direction_is_told_the_other_way() -> None:
    new = small()
    new["components"]["schemas"]["Thing"]["properties"]["name"]["minLength"] = 1
    new["components"]["schemas"]["Thing"] |= {"additionalProperties": False, "required": []}
    assert compared(new, small()) == [
        "schema Thing (request of make, answers of make)",
        "  + opened: unknown members are allowed (widened)",
        "  - field name: made required",
        "  + name: minLength 1 -> none (widened)",
    ]


def test_answers_bodies_and_security_of_an_operation() -> None:
    new = small(
        operationId="create",
        security=[],
        responses={
            "200": {"description": "made", "content": {"application/msgpack": {}}},
            "413": {"description": "large", "content": answer("Fault")},
        },
    )
    new["paths"]["/things"]["post"]["requestBody"] = {"content": answer("Fault")}
    assert compared(small(), new) == [
        "POST /things",
        "  ? operation make looks renamed to create",
        "  ~ security: none -> []",
        "  + request body: made optional",
        "  ~ request body: envelope Thing -> Fault",
        "  + answer 413: Fault",
        "  - answer 400: it can leave the server no more",
        "  + answer 200: media type application/msgpack",
        "  - answer 200: media type application/json",
    ]


def test_a_moved_operation_and_a_renamed_schema() -> None:
    new = json.loads(json.dumps(small()).replace("schemas/Thing", "schemas/Item"))
    new["components"]["schemas"]["Item"] = new["components"]["schemas"].pop("Thing")
    new["paths"]["/items"] = new["paths"].pop("/things")
    assert compared(small(), new) == [
        "POST /items",
        "  ~ moved from POST /things",
        "  ~ request body: envelope Thing -> Item",
        "  ~ answer 200: envelope Thing -> Item",
        "schema Item (request of make, answers of make)",
        "  ? schema Thing looks renamed to Item",
    ]


def test_inherited_security() -> None:
    old, new = small(), small()
    new["security"] = [{"bearer": []}]
    assert compared(old, new) == ["POST /things", '  ~ security: none -> [{"bearer": []}]']
    old["paths"]["/things"]["post"]["security"] = new["paths"]["/things"]["post"]["security"] = []
    assert compared(old, new) == ["no change for handlers"]


def test_vendor_keys() -> None:
    def events(schema: str) -> dict[str, Any]:
        reference = {"$ref": f"#/components/schemas/{schema}"}
        return {"200": {"description": "", "content": {"text/event-stream": {"x-oasgate-event-schema": reference}}}}

    new = small(responses=events("Fault"), **{"x-oasgate-max-body-bytes": 10, "x-oasgate-catch-all": True})
    assert compared(small(responses=events("Thing")), new)[:4] == [
        "POST /things",
        "  ~ catch-all path: none -> true",
        "  ~ largest body: none -> 10",
        "  ~ answer 200: events Thing -> Fault",
    ]


def test_a_header_of_an_answer() -> None:
    def headed(**header: Any) -> dict[str, Any]:
        document = small(responses={"200": {"description": "", "headers": {"H": {"$ref": "#/components/headers/H"}}}})
        document["components"]["headers"] = {"H": header}
        return document

    assert compared(headed(schema={"type": "string"}), headed(schema={"type": "integer"}, required=True)) == [
        "POST /things",
        "  ~ answer 200: header H: made required",
        "  + answer 200: header H: integer allowed",
        "  - answer 200: header H: string refused",
    ]


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (
            {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"anyOf": [{"required": ["b"]}, {"required": ["c"]}]},
            ["  - field anyOf branch.c: made required", "  + field anyOf branch.a: made optional"],
        ),
        (
            {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"anyOf": [{"required": ["b"]}]},
            ['  - anyOf branch {"required": ["a"]}'],
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 1}]},
            {"oneOf": [{"type": "string", "maxLength": 1}]},
            ["  - oneOf branch string"],
        ),
        ({}, {"required": ["name", "lost"]}, ["  - field lost: made required"]),
        ({"required": ["name", "lost"]}, {}, ["  + field lost: made optional"]),
        ({"items": {"type": "string"}}, {}, _ITEMS),
        (
            {"allOf": [{"$ref": "#/components/schemas/Fault", "minProperties": 1}]},
            {"allOf": [{"$ref": "#/components/schemas/Fault", "minProperties": 2}]},
            ["  - minProperties 1 -> 2 (narrowed)"],
        ),
    ],
)
def test_a_change_inside_a_schema(before: dict[str, Any], after: dict[str, Any], lines: list[str]) -> None:
    old, new = small(), small()
    old["components"]["schemas"]["Thing"] |= before
    new["components"]["schemas"]["Thing"] |= after
    assert sorted(compared(old, new)[1:]) == sorted(lines)


def test_the_command_names_overlays_that_fit_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = small(), copy.deepcopy(small())
    new["paths"]["/goods"] = new["paths"].pop("/things")
    for name, document in (("old", old), ("new", new)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "fix.overlay.yaml").write_text(
        "overlay: 1.0.0\ninfo: {title: t, version: '1'}\nactions: [{target: \"$.paths['/things']\", update: {}}]\n"
    )
    project = tmp_path / "pyproject.toml"
    project.write_text(
        "[tool.oasgate.documents.one]\ndocument = 'old.json'\npackage = 'out'\noverlays = ['fix.overlay.yaml']\n"
    )
    files = [str(tmp_path / "old.json"), str(tmp_path / "new.json")]
    assert main(["--pyproject", str(project), "--diff", *files, "--overlaid", "one"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "overlay does not fit new.json: actions[0] $.paths['/things']: selects nothing",
        "POST /goods",
        "  ~ moved from POST /things",
    ]

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

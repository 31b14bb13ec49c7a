"""What cannot be expressed is named with its place; nothing is dropped in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codegen import checks
from codegen.__main__ import main
from codegen.document import Document, overlaid
from codegen.faults import DocumentError
from tests.codegen.world import Package, answer, small

Change = Callable[[dict[str, Any]], None]
POST = "/paths/~1things/post"
THING = "/components/schemas/Thing"
LOST = "#/components/schemas/Lost"
SECOND = "uniqueItems needs a second validation: give the body's schema a name"


def faults(document: dict[str, Any]) -> list[str]:
    try:
        checks.check(Document(document))
    except DocumentError as error:
        return str(error).splitlines()
    return []


def of_operation(**members: Any) -> dict[str, Any]:
    return small(**members)


def of_thing(**schema: Any) -> dict[str, Any]:
    document = small()
    document["components"]["schemas"]["Thing"] |= schema
    return document


def of_name(**schema: Any) -> dict[str, Any]:
    return of_thing(properties={"name": schema})


def of_root(**members: Any) -> dict[str, Any]:
    return {**small(), **members}


def of_path(path: str, **members: Any) -> dict[str, Any]:
    document = small()
    document["paths"][path] = {"get": {"operationId": "read", "responses": {"200": {"description": ""}}, **members}}
    return document


def body(**content: Any) -> dict[str, Any]:
    return {"content": {media.replace("__", "/"): value for media, value in content.items()}}


def parameter(**members: Any) -> dict[str, Any]:
    return of_operation(parameters=[{"name": "p", "in": "query", "schema": {"type": "string"}, **members}])


def of_item(**members: Any) -> dict[str, Any]:
    document = small()
    document["paths"]["/things"] |= members
    return document


def shared(kind: str, value: dict[str, Any], **operation: Any) -> dict[str, Any]:
    """A component which the operation refers to by ``#/components/{kind}/C``."""
    document = small(**operation)
    document["components"][kind] = {"C": value}
    return document


def to(kind: str, **beside: Any) -> dict[str, Any]:
    return {"$ref": f"#/components/{kind}/C", **beside}


def elsewhere() -> dict[str, Any]:
    """The only path item is a component."""
    document = small()
    document["components"]["pathItems"] = {"C": document["paths"]["/things"]}
    document["paths"]["/things"] = to("pathItems")
    return document


NULLABLE = {"type": "string", "nullable": True}
NO_NULLABLE = "nullable has no meaning in OpenAPI 3.1; say type: [..., 'null']"
INLINE = {"application/json": {"schema": {"type": "object", "properties": {"a": NULLABLE}}}}
REF = {"schema": {"$ref": "#/components/schemas/Thing"}}
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("a good document", small(), []),
    ("no openapi", {"paths": {}}, ["/: not an OpenAPI document"]),
    ("another version", of_root(openapi="3.0.3"), ["/openapi: version 3.0.3 is not 3.1"]),
    ("webhooks", of_root(webhooks={"w": {}}), ["/webhooks: webhooks cannot be generated"]),
    (
        "a dangling reference",
        of_operation(responses={"200": {"description": "", "content": answer("Lost")}}),
        [
            f"{POST}/responses/200/content/application~1json/schema/$ref: reference to nothing: {LOST}"
        ],
    ),
    (
        "a reference into another file",
        of_name(**{"$ref": "other.json#/Thing"}),
        [f"{THING}/properties/name/$ref: reference outside the document: other.json#/Thing"],
    ),
    (
        "a reference to itself",
        of_root(components={"schemas": {"Thing": {"$ref": "#/components/schemas/Thing"}, "Fault": {}}}),
        [
            f"{at}/$ref: reference to itself: #/components/schemas/Thing"
            for at in (
                THING,
                f"{POST}/requestBody/content/application~1json/schema",
                f"{POST}/responses/200/content/application~1json/schema",
            )
        ],
    ),
    ("nullable", of_name(type="string", nullable=True), [
        f"{THING}/properties/name/nullable: nullable has no meaning in OpenAPI 3.1; say type: [..., 'null']"
    ]),
    ("a misspelt keyword", of_name(type="string", maxLenght=3), [
        f"{THING}/properties/name/maxLenght: unknown keyword 'maxLenght'"
    ]),
    ("an unknown type", of_name(type="text"), [f"{THING}/properties/name/type: unknown type 'text'"]),
    ("a boolean bound", of_name(type="integer", exclusiveMinimum=True), [
        f"{THING}/properties/name/exclusiveMinimum: exclusiveMinimum is a number in OpenAPI 3.1"
    ]),
    ("an empty schema", of_name(type="string", oneOf=[{"type": "integer"}]), [
        f"{THING}/properties/name: no value satisfies this schema"
    ]),
    ("an untellable discriminator", of_name(
        oneOf=[{"$ref": "#/components/schemas/Fault"}, {"$ref": "#/components/schemas/Thing"}],
        discriminator={"propertyName": "kind"},
    ), [f"{THING}/properties/name/discriminator: the branches do not require the member with one value each"]),
    ("no operationId", of_operation(operationId=""), [f"{POST}: operationId is missing"]),
    ("an operationId that is no name", of_operation(operationId="make-it"), [
        f"{POST}/operationId: 'make-it' is not a Python identifier"
    ]),
    ("an operationId twice", of_path("/other", operationId="make"), [
        f"/paths/~1other/get/operationId: 'make' is taken by {POST}"
    ]),
    ("two tags", of_operation(tags=["a", "b"]), [f"{POST}/tags: an operation belongs to one tag"]),
    ("callbacks", of_operation(callbacks={}), [f"{POST}/callbacks: callbacks cannot be generated"]),
    ("a misspelt vendor key", of_operation(**{"x-oasgate-amin": True}), [
        f"{POST}/x-oasgate-amin: unknown key x-oasgate-amin"
    ]),
    ("an undeclared path parameter", of_path("/other/{id}"), [
        "/paths/~1other~1{id}/get: path parameter 'id' is not declared"
    ]),
    ("a path parameter too many", of_path(
        "/other", parameters=[{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    ), ["/paths/~1other/get: path parameter 'id' is not in the path"]),
    ("text around a parameter", of_path(
        "/other/{id}.json", parameters=[{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    ), ["/paths/~1other~1{id}.json/get: path segment '{id}.json' mixes text and parameter"]),
    ("a tail without its catch-all", of_path(
        "/other/{id}/status",
        parameters=[{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
        **{"x-oasgate-catch-all": True},
    ), ["/paths/~1other~1{id}~1status/get/x-oasgate-catch-all: /other/{id} is no catch-all operation of GET"]),
    ("a cookie", parameter(**{"in": "cookie"}), [f"{POST}/parameters/0: a cookie parameter cannot be generated"]),
    ("an array in the query", parameter(schema={"type": "array"}), [
        f"{POST}/parameters/0/schema: a parameter of type array cannot be generated"
    ]),
    ("a parameter with not", parameter(schema={"type": "string", "not": {"const": "x"}}), [
        f"{POST}/parameters/0/schema/not: not of a parameter cannot be enforced"
    ]),
    ("a style", parameter(style="deepObject"), [f"{POST}/parameters/0/style: style cannot be generated"]),
    ("a body in XML", of_operation(requestBody=body(application__xml=REF)), [
        f"{POST}/requestBody/content/application~1xml: a body in application/xml cannot be decoded"
    ]),
    ("two bodies", of_operation(requestBody=body(application__json=REF, application__msgpack={"schema": {}})), [
        f"{POST}/requestBody: media types with different schemas cannot be generated"
    ]),
    ("an inline body for the second pass", of_operation(
        requestBody=body(application__json={"schema": {"type": "object", "properties": {"a": {"uniqueItems": True}}}})
    ), [
        f"{POST}/requestBody/properties/a/uniqueItems: {SECOND}"
    ]),
    ("a form with if", of_operation(
        requestBody={"content": {"multipart/form-data": {
            "schema": {"type": "object", "properties": {"a": {"type": "string"}}, "if": {}}
        }}}
    ), [
        f"{POST}/requestBody/content/multipart~1form-data/schema/if: if of a form field cannot be enforced"
    ]),
    ("a form or null", of_operation(
        requestBody={"content": {"multipart/form-data": {
            "schema": {"type": ["object", "null"], "properties": {"a": {"type": "string"}}}
        }}}
    ), [
        f"{POST}/requestBody/content/multipart~1form-data/schema: a form cannot be null"
    ]),
    ("a default answer", of_operation(responses={"default": {"description": ""}}), [
        f"{POST}/responses/default: status 'default' is not a number"
    ]),
    ("an API key", of_root(components={
        **small()["components"], "securitySchemes": {"key": {"type": "apiKey", "name": "k", "in": "header"}}
    }), ["/components/securitySchemes/key: only bearer tokens can be generated"]),
    ("an undeclared scheme", of_operation(security=[{"lost": []}]), [
        f"{POST}/security: security scheme 'lost' is not declared"
    ]),
    ("a choice of schemes", of_operation(security=[{}, {}]), [
        f"{POST}/security: a choice or combination of security schemes cannot be generated"
    ]),
    ("a path item elsewhere", elsewhere(), ["/paths/~1things/$ref: $ref of a path item cannot be generated"]),
    ("a method that is none", of_item(query={}), ["/paths/~1things/query: query cannot be generated"]),
    ("servers of a path", of_item(servers=[]), ["/paths/~1things/servers: servers cannot be generated"]),
    ("servers of an operation", of_operation(servers=[]), [f"{POST}/servers: servers cannot be generated"]),
    ("a vendor key of a path", of_item(**{"x-oasgate-admin": True}), [
        "/paths/~1things/x-oasgate-admin: unknown key x-oasgate-admin"
    ]),
    ("another vendor's key of a path", of_item(**{"x-other": True}), []),
    ("a vendor key of a schema", of_name(**{"x-oasgate-admin": True}), [
        f"{THING}/properties/name/x-oasgate-admin: unknown keyword 'x-oasgate-admin'"
    ]),
    ("hosts", of_root(servers=[{"url": "https://a.example:8080/"}, {"url": "/"}, {"url": "//b.example"}]), []),
    ("a base path", of_root(servers=[{"url": "https://{host}/v1"}]), [
        "/servers/0/url: base path '/v1' cannot be generated: write it in the paths"
    ]),
    ("a root key of no kind", of_root(jsonSchemaDialect="x"), [
        "/jsonSchemaDialect: jsonSchemaDialect cannot be generated"
    ]),
    ("an empty value", parameter(allowEmptyValue=True), [
        f"{POST}/parameters/0/allowEmptyValue: allowEmptyValue cannot be generated"
    ]),
    ("an encoding of an answer", of_operation(
        responses={"200": {"description": "", "content": {"application/json": {**REF, "encoding": {}}}}}
    ), [f"{POST}/responses/200/content/application~1json/encoding: encoding cannot be generated"]),
    ("events of what is no stream", of_operation(
        responses={"200": {"description": "", "content": {"application/json": {**REF, "x-oasgate-event-schema": {}}}}}
    ), [f"{POST}/responses/200/content/application~1json/x-oasgate-event-schema: only text/event-stream has events"]),
    ("events of a body", of_operation(
        requestBody=body(application__json={**REF, "x-oasgate-event-schema": {}})
    ), [f"{POST}/requestBody/content/application~1json/x-oasgate-event-schema: unknown key x-oasgate-event-schema"]),
    ("a keyword in a body elsewhere", shared("requestBodies", {"content": INLINE}, requestBody=to("requestBodies")), [
        f"/components/requestBodies/C/content/application~1json/schema/properties/a/nullable: {NO_NULLABLE}"
    ]),
    ("a keyword in an answer elsewhere", shared(
        "responses", {"description": "", "content": INLINE}, responses={"200": to("responses")}
    ), [f"/components/responses/C/content/application~1json/schema/properties/a/nullable: {NO_NULLABLE}"]),
    ("a keyword in a parameter elsewhere", shared(
        "parameters", {"name": "p", "in": "query", "schema": NULLABLE}, parameters=[to("parameters")]
    ), [f"/components/parameters/C/schema/nullable: {NO_NULLABLE}"]),
    ("a keyword in a header elsewhere", shared(
        "headers", {"schema": NULLABLE}, responses={"200": {"description": "", "headers": {"H": to("headers")}}}
    ), [f"/components/headers/C/schema/nullable: {NO_NULLABLE}"]),
    ("a component called default", of_root(components={
        **small()["components"], "responses": {"default": {"description": "", "content": answer("Lost")}}
    }), [
        f"/components/responses/default/content/application~1json/schema/$ref: reference to nothing: {LOST}"
    ]),
    ("a key beside a reference", shared(
        "requestBodies", {"content": {"application/json": REF}}, requestBody=to("requestBodies", required=True)
    ), [f"{POST}/requestBody/required: required beside $ref cannot be generated"]),
    ("members of a string", of_thing(type=["object", "string"]), [
        f"{THING}/type: members beside type string cannot be generated: use oneOf"
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("document", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_fault_is_named_with_its_place(document: dict[str, Any], expected: list[str]) -> None:
    assert faults(document) == expected


def test_a_relaxation_without_effect_is_a_fault(tmp_path: Path) -> None:
    document = of_thing(minProperties=2)
    path = tmp_path / "relax.overlay.yaml"
    target = "$.components.schemas.Thing.properties.name"
    path.write_text(
        f"overlay: 1.0.0\ninfo: {{title: t, version: '1'}}\nactions: [{{target: {target}.type, remove: true}}]\n"
    )
    with pytest.raises(DocumentError) as caught:
        Package(tmp_path, document, overlays=(path,))
    assert str(caught.value) == (
        f"{THING}: differs for the generator, but make is validated against the served document"
    )


def test_a_body_that_msgspec_cannot_decode_is_named(tmp_path: Path) -> None:
    def tagged(**tags: str) -> dict[str, Any]:
        members = {name: {"const": value} for name, value in tags.items()}
        return {"type": "object", "required": list(tags), "properties": members}

    def one_of(*names: str) -> dict[str, Any]:
        return {"oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}

    document = of_thing(properties={"name": one_of("A", "B"), "other": one_of("A", "C")})
    # A struct has one tag, and A is told from B by another member than from C.
    document["components"]["schemas"] |= {
        "A": tagged(kind="x", form="p"),
        "B": tagged(kind="y"),
        "C": tagged(form="q"),
    }
    with pytest.raises(DocumentError, match=r"^/paths/~1things/post/requestBody: msgspec cannot decode this body: "):
        Package(tmp_path, document)


def test_all_faults_are_gathered() -> None:
    document = of_operation(operationId="make-it", callbacks={})
    document["components"]["schemas"]["Thing"]["properties"]["name"]["nullable"] = True
    assert len(faults(document)) == 3


def test_the_command_prints_the_faults_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.oasgate.documents.bad]\ndocument = 'bad.yaml'\npackage = 'out.bad'\n"
    )
    (tmp_path / "bad.yaml").write_text("openapi: 3.1.0\ninfo: {}\nwebhooks: {a: {}}\n")
    assert main(["--pyproject", str(tmp_path / "pyproject.toml")]) == 1
    assert capsys.readouterr().err == "bad: 1 fault(s) in bad.yaml\n/webhooks: webhooks cannot be generated\n"
    assert not (tmp_path / "out").exists()


def test_a_stale_overlay_is_a_fault_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "fix.overlay.yaml"
    path.write_text("overlay: 1.0.0\ninfo: {title: t, version: '1'}\nactions: [{target: $.gone, update: {}}]\n")
    with pytest.raises(DocumentError, match=r"^/: fix\.overlay\.yaml: actions\[0\] \$\.gone: selects nothing$"):
        overlaid(small(), [path])

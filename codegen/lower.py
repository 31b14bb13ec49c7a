"""Checked document -> intermediate form."""

from __future__ import annotations

from typing import Any

from codegen import schemas
from codegen.document import SCHEMAS, Document, Tree, pointer
from codegen.ir import Body, Operation, Parameter, Response, Service, Tag, Type
from codegen.lowering import Lowering, scalar
from codegen.names import class_name

MULTIPART = "multipart/form-data"
EVENTS = "text/event-stream"


def service(document: Document, lowering: Lowering) -> Service:
    """Build the intermediate form; inline schemas of bodies get classes in ``lowering``."""
    operations = tuple(
        _operation(document, lowering, path, method, node, at) for path, method, node, at in document.operations()
    )
    described = {tag["name"]: tag.get("description", "") for tag in document.tree.get("tags", ())}
    names = dict.fromkeys([*described, *(operation.tag for operation in operations)])
    tags = tuple(
        Tag(name=name, doc=described.get(name, ""), operations=members)
        for name in names
        if (members := tuple(operation for operation in operations if operation.tag == name))
    )
    info = document.tree["info"]
    return Service(title=info["title"], version=info["version"], tags=tags, operations=operations)


def _operation(document: Document, lowering: Lowering, path: str, method: str, node: Tree, at: str) -> Operation:
    shared = document.tree["paths"][path].get("parameters", [])
    parameters = {(p["name"].lower(), p["in"]): p for p in map(document.resolve, [*shared, *node.get("parameters", [])])}
    responses = tuple(
        _response(document, lowering, node["operationId"], int(status), document.resolve(response))
        for status, response in sorted(node["responses"].items())
    )
    statuses = [response.status for response in responses]
    security = node.get("security", document.tree.get("security", []))
    return Operation(
        id=node["operationId"],
        method=method.upper(),
        path=path,
        tag=node.get("tags", ["default"])[0],
        doc=(node.get("summary") or node.get("description") or "").strip(),
        parameters=tuple(_parameter(document, p) for p in parameters.values()),
        body=_body(document, lowering, node, at) if "requestBody" in node else None,
        responses=responses,
        success=next((status for status in statuses if status < 400), statuses[-1]),
        secured=any(security),
        admin=bool(node.get("x-oasgate-admin")),
        websocket=101 in statuses,
        catch_all=bool(node.get("x-oasgate-catch-all")),
    )


def _parameter(document: Document, node: Tree) -> Parameter:
    location = node["in"]
    return Parameter(
        name=node["name"],
        location=location,
        required=location == "path" or node.get("required", False),
        type=_parameter_type(document, node["schema"]),
    )


def _parameter_type(document: Document, schema: Tree) -> str:
    """Python expression that `msgspec.convert(text, ..., strict=False)` takes."""
    schema = document.resolve(schema)
    if "enum" in schema:
        return f"Literal[{', '.join(repr(value) for value in schema['enum'] if value is not None)}]"
    kind = next(iter(schemas.types(document, schema) - {"null"} & {"number"}), None)
    kind = kind or next(iter(schemas.types(document, schema) - {"null"}))
    name = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[kind]
    meta = {_META[key]: value for key, value in scalar(schema, kind).items() if key in _META}
    if not meta:
        return name
    return f"Annotated[{name}, Meta({', '.join(f'{key}={value!r}' for key, value in meta.items())})]"


_META = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
}


def _body(document: Document, lowering: Lowering, node: Tree, at: str) -> Body:
    body = document.resolve(node["requestBody"])
    media = tuple(body["content"])
    schema = body["content"][media[0]]["schema"]
    multipart = media == (MULTIPART,)
    excess = any(schemas.beyond_structs(document, schema, pointer(at, "requestBody")))
    reference = schema.get("$ref", "") if isinstance(schema, dict) else ""
    return Body(
        type=_type(document, lowering, schema, class_name(node["operationId"]) + "Request"),
        media=media,
        required=body.get("required", False),
        schema=reference.removeprefix(SCHEMAS) if excess and not multipart else None,
        multipart=multipart,
        max_bytes=node.get("x-oasgate-max-body-bytes"),
    )


def _response(document: Document, lowering: Lowering, operation: str, status: int, node: Tree) -> Response:
    content = {}
    hint = class_name(operation) + ("Response" if status < 300 else f"Response{status}")
    for media, value in node.get("content", {}).items():
        schema = value.get("schema", {})
        if media.startswith(EVENTS):
            schema = value.get("x-oasgate-event-schema", {"type": "string"})
        content[media] = _alternatives(document, lowering, schema, hint)
    return Response(
        status=status,
        description=" ".join(node.get("description", "").split()),
        content=content,
        headers=tuple(node.get("headers", {})),
    )


def _alternatives(document: Document, lowering: Lowering, schema: Any, hint: str) -> tuple[Type, ...]:
    """The types of a response: a union of objects, which no decoder takes, as its members."""
    resolved = document.resolve(schema)
    branches = resolved.get("oneOf", resolved.get("anyOf")) if isinstance(resolved, dict) else None
    if branches and all(schemas.types(document, branch) == {"object"} for branch in branches):
        found = [_alternatives(document, lowering, b, f"{hint}{i or ''}") for i, b in enumerate(branches)]
        return tuple(dict.fromkeys(one for members in found for one in members))
    return (_type(document, lowering, schema, hint),)


def _type(document: Document, lowering: Lowering, schema: Any, hint: str) -> Type:
    if isinstance(schema, dict) and "$ref" in schema:
        return Type(name=lowering.name(schema, hint), model=True)
    admitted = schemas.types(document, schema)
    if admitted == schemas.TYPES:
        return Type(name="Any")
    if admitted == {"string"} and not set(schema) & {"enum", "const", *schemas.CONSTRAINTS}:
        return Type(name="bytes" if schema.get("format") == "binary" else "str")
    if admitted == {"object"} and not set(schema) & {"properties", "additionalProperties", "allOf", "oneOf", "anyOf"}:
        return Type(name="dict[str, Any]")
    return Type(name=lowering.name(schema, hint), model=True)


"""Checked document -> intermediate form."""

from __future__ import annotations

from typing import Any

from codegen import schemas
from codegen.document import SCHEMAS, Document, Site, Tree
from codegen.ir import Body, Operation, Parameter, Response, Service, Tag, Type
from codegen.lowering import Lowering, scalar
from codegen.models import constraints
from codegen.names import class_name

MULTIPART = "multipart/form-data"
EVENTS = "text/event-stream"
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}


def service(document: Document, lowering: Lowering) -> Service:
    """Build the intermediate form; inline schemas of bodies get classes in ``lowering``."""
    reader = _Reader(document, lowering)
    operations = tuple(reader.operation(site) for site in document.operations())
    described = {tag["name"]: tag.get("description", "") for tag in document.tree.get("tags", ())}
    names = dict.fromkeys([*described, *(operation.tag for operation in operations)])
    tags = tuple(
        Tag(name=name, doc=described.get(name, ""), operations=members)
        for name in names
        if (members := tuple(operation for operation in operations if operation.tag == name))
    )
    info = document.tree["info"]
    return Service(title=info["title"], version=info["version"], tags=tags, operations=operations)


class _Reader:
    def __init__(self, document: Document, lowering: Lowering) -> None:
        self.document = document
        self.lowering = lowering

    def operation(self, site: Site) -> Operation:
        node = site.node
        parameters = {(p["name"].lower(), p["in"]): p for p, _ in self.document.parameters(site)}
        responses = tuple(
            self.response(node["operationId"], int(status), self.document.resolve(response))
            for status, response in sorted(node["responses"].items())
        )
        statuses = [response.status for response in responses]
        inherited: list[Tree] = self.document.tree.get("security", [])
        security: list[Tree] = node.get("security", inherited)
        return Operation(
            id=node["operationId"],
            method=site.method.upper(),
            path=site.path,
            tag=node.get("tags", ["default"])[0],
            doc=(node.get("summary") or node.get("description") or "").strip(),
            parameters=tuple(map(self.parameter, parameters.values())),
            body=self.body(site) if "requestBody" in node else None,
            responses=responses,
            # An operation that only refuses has its refusal as its normal answer.
            success=next((status for status in statuses if status < 400), statuses[-1]),
            secured=any(security),
            admin=bool(node.get("x-oasgate-admin")),
            websocket=101 in statuses,
            catch_all=bool(node.get("x-oasgate-catch-all")),
        )

    def parameter(self, node: Tree) -> Parameter:
        return Parameter(
            name=node["name"],
            location=node["in"],
            required=node["in"] == "path" or node.get("required", False),
            type=self.parameter_type(node["schema"]),
        )

    def parameter_type(self, schema: Tree) -> str:
        """Python expression that `msgspec.convert(text, ..., strict=False)` takes."""
        schema = schemas.without_null(self.document, schema)
        if "enum" in schema:
            return f"Literal[{', '.join(repr(value) for value in schema['enum'] if value is not None)}]"
        admitted = schemas.types(self.document, schema) - {"null"}
        kind = "number" if "number" in admitted else min(admitted)
        meta = constraints(scalar(schema, kind))
        return f"Annotated[{_SCALARS[kind]}, Meta({meta})]" if meta else _SCALARS[kind]

    def body(self, site: Site) -> Body:
        node = self.document.resolve(site.node["requestBody"])
        media = tuple(node["content"])
        schema = node["content"][media[0]]["schema"]
        multipart = media == (MULTIPART,)
        excess = any(schemas.beyond_structs(self.document, schema, ""))
        return Body(
            type=self.type(schema, class_name(site.node["operationId"]) + "Request", decoded=True),
            media=media,
            required=node.get("required", False),
            schema=schema["$ref"].removeprefix(SCHEMAS) if excess and not multipart else None,
            multipart=multipart,
            max_bytes=site.node.get("x-oasgate-max-body-bytes"),
        )

    def response(self, operation: str, status: int, node: Tree) -> Response:
        content = {}
        hint = class_name(operation) + ("Response" if status < 300 else f"Response{status}")
        for media, value in node.get("content", {}).items():
            schema = value.get("schema", {})
            if media.startswith(EVENTS):
                schema = value.get("x-oasgate-event-schema", {"type": "string"})
            content[media] = self.alternatives(schema, hint)
        return Response(
            status=status,
            description=" ".join(node.get("description", "").split()),
            content=content,
            headers=tuple(node.get("headers", {})),
        )

    def alternatives(self, schema: Any, hint: str) -> tuple[Type, ...]:
        """The types of a response: a union of objects, which no decoder takes, as its members."""
        resolved = self.document.resolve(schema)
        branches = resolved.get("oneOf", resolved.get("anyOf")) if isinstance(resolved, dict) else None
        if branches and all(schemas.types(self.document, branch) == {"object"} for branch in branches):
            found = [self.alternatives(branch, f"{hint}{i or ''}") for i, branch in enumerate(branches)]
            return tuple(dict.fromkeys(one for members in found for one in members))
        return (self.type(schema, hint),)

    def type(self, schema: Any, hint: str, *, decoded: bool = False) -> Type:
        if isinstance(schema, dict) and "$ref" in schema:
            return Type(name=self.lowering.name(schema, hint, decoded=decoded), model=True)
        admitted = schemas.types(self.document, schema)
        if admitted == schemas.TYPES:
            return Type(name="Any")
        if admitted == {"string"} and not set(schema) & {"enum", "const", *schemas.CONSTRAINTS}:
            return Type(name="bytes" if schema.get("format") == "binary" else "str")
        if admitted == {"object"} and not set(schema) & {
            "properties",
            "additionalProperties",
            "allOf",
            "oneOf",
            "anyOf",
        }:
            return Type(name="dict[str, Any]")
        return Type(name=self.lowering.name(schema, hint, decoded=decoded), model=True)

"""What cannot be expressed, named with its place: nothing of a document is dropped in silence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from codegen import places, schemas
from codegen.document import METHODS, SCHEMAS, Document, Site, Tree, pointer
from codegen.faults import DocumentError, Fault
from codegen.names import class_name, identifier, is_class_name

Check = Callable[[Document], Iterator[Fault]]

SERVED_METHODS = ("get", "put", "post", "delete", "patch", "head")
# Objects whose keys are names: one of them may be `default` or `example`.
_NAMED = re.compile(r"/(p(atternP)?roperties|dependentSchemas)$|^/components/[^/]+$|^/paths/[^/]+/[^/]+/responses$")
JSON, MULTIPART, EVENTS = "application/json", "multipart/form-data", "text/event-stream"
MSGPACK = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")


def check(document: Document) -> None:
    """Run every check.

    Raises:
        DocumentError: with every fault found.
    """
    broken = list(_references(document))
    if broken:
        raise DocumentError(broken)  # the other checks follow references
    faults = [fault for one in CHECKS for fault in one(document)]
    if faults:
        raise DocumentError(faults)


def _references(document: Document) -> Iterator[Fault]:
    """References are local, lead somewhere, and never only to each other."""
    if "openapi" not in document.tree or "info" not in document.tree:
        yield Fault("", "not an OpenAPI document")
        return
    for at, node in _walk(document.tree, ""):
        reference = node.get("$ref")
        if not isinstance(reference, str):
            continue
        if not reference.startswith("#/"):
            yield Fault(pointer(at, "$ref"), f"reference outside the document: {reference}")
            continue
        seen: set[str] = set()
        target: Any = node
        try:
            while isinstance(target, dict) and isinstance(target.get("$ref"), str):
                if target["$ref"] in seen:
                    yield Fault(pointer(at, "$ref"), f"reference to itself: {reference}")
                    break
                seen.add(target["$ref"])
                target = document.lookup(target["$ref"])
        except (KeyError, IndexError, ValueError, TypeError):
            yield Fault(pointer(at, "$ref"), f"reference to nothing: {reference}")


def _walk(node: Any, at: str) -> Iterator[tuple[str, Tree]]:
    """Every object of the tree, examples left out: what they hold is not the document's."""
    if isinstance(node, dict):
        yield at, node
        members = _NAMED.search(at)  # whose keys are names, not keywords
        for key, value in node.items():
            if members or key not in ("example", "examples", "default", "enum", "const"):
                yield from _walk(value, pointer(at, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _walk(value, pointer(at, index))


def _versions(document: Document) -> Iterator[Fault]:
    if not str(document.tree["openapi"]).startswith("3.1."):
        yield Fault("/openapi", f"version {document.tree['openapi']} is not 3.1")
    for key in ("webhooks",):
        if document.tree.get(key):
            yield Fault(pointer("", key), "webhooks cannot be generated")


def _names(document: Document) -> Iterator[Fault]:
    """Names that become Python names do so one to one."""
    seen: dict[str, str] = {}
    for name in document.schemas:
        at = pointer("", "components", "schemas", name)
        python = class_name(name)
        if not is_class_name(python):
            yield Fault(at, f"{name!r} gives no class name")
        elif python in seen:
            yield Fault(at, f"{name!r} and {seen[python]!r} give the same class name {python}")
        seen.setdefault(python, name)
    identifiers: dict[str, str] = {}
    for site in document.operations():
        node, at = site.node, site.at
        name = str(node.get("operationId", ""))
        if not name:
            yield Fault(at, "operationId is missing")
        elif not identifier(name):
            yield Fault(pointer(at, "operationId"), f"{name!r} is not a Python identifier")
        elif name.upper() in identifiers:
            yield Fault(pointer(at, "operationId"), f"{name!r} is taken by {identifiers[name.upper()]}")
        else:
            identifiers[name.upper()] = at


def _operations(document: Document) -> Iterator[Fault]:
    for site in document.operations():
        node, at = site.node, site.at
        if site.method not in SERVED_METHODS:
            yield Fault(at, f"method {site.method.upper()} cannot be generated")
        if len(node.get("tags", [""])) != 1:
            yield Fault(pointer(at, "tags"), "an operation belongs to one tag")
        elif not identifier(class_name(node.get("tags", ["default"])[0])):
            yield Fault(pointer(at, "tags", 0), f"{node['tags'][0]!r} gives no class name")
        yield from _path(document, site)
        if site.method in ("get", "head") and "requestBody" in node:
            yield Fault(pointer(at, "requestBody"), f"a body of {site.method.upper()} cannot be generated")


def _path(document: Document, site: Site) -> Iterator[Fault]:
    path, at = site.path, site.at
    declared = {p["name"] for p, _ in document.parameters(site) if p.get("in") == "path"}
    named = re.findall(r"\{([^{}]*)\}", path)
    for name in sorted(set(named) - declared):
        yield Fault(at, f"path parameter {name!r} is not declared")
    for name in sorted(declared - set(named)):
        yield Fault(at, f"path parameter {name!r} is not in the path")
    for segment in path.split("/"):
        if "{" in segment and not re.fullmatch(r"\{[^{}]+\}", segment):
            yield Fault(at, f"path segment {segment!r} mixes text and parameter")
    others = document.tree["paths"][path].items()
    if len({bool(node.get("x-oasgate-catch-all")) for method, node in others if method in METHODS}) > 1:
        yield Fault(at, "the methods of one path differ in x-oasgate-catch-all")
    if site.node.get("x-oasgate-catch-all"):
        base, tail = path[: path.rfind("}") + 1], path[path.rfind("}") + 1 :]
        owner = document.tree["paths"].get(base, {}).get(site.method, {})
        if not named:
            yield Fault(pointer(at, "x-oasgate-catch-all"), "a catch-all path ends with a parameter")
        elif tail and not owner.get("x-oasgate-catch-all"):
            yield Fault(
                pointer(at, "x-oasgate-catch-all"), f"{base} is no catch-all operation of {site.method.upper()}"
            )


def _parameter_types(document: Document) -> Iterator[Fault]:
    for site in document.operations():
        for parameter, where in document.parameters(site):
            if parameter["in"] not in ("path", "query", "header"):
                yield Fault(where, f"a {parameter['in']} parameter cannot be generated")
            if "schema" not in parameter:
                yield Fault(where, "a parameter without schema cannot be generated")
                continue
            yield from _scalar(document, parameter["schema"], pointer(where, "schema"))


def _scalar(document: Document, schema: Any, at: str) -> Iterator[Fault]:
    schema = schemas.without_null(document, schema)
    admitted = schemas.types(document, schema) - {"null"}
    kinds = admitted - ({"integer"} if "number" in admitted else set())
    if len(kinds) != 1 or kinds & {"array", "object"}:
        yield Fault(at, f"a parameter of type {' or '.join(sorted(kinds))} cannot be generated")
        return
    for where, keyword in schemas.beyond_structs(document, schema, at):
        yield Fault(where, f"{keyword} of a parameter cannot be enforced")


def _bodies(document: Document) -> Iterator[Fault]:
    for _, _, node, at in document.operations():
        if "requestBody" not in node:
            continue
        where = pointer(at, "requestBody")
        content = document.resolve(node["requestBody"]).get("content", {})
        if not content:
            yield Fault(where, "a body without a media type cannot be generated")
            continue
        for media, value in content.items():
            here = pointer(where, "content", media)
            if media not in (JSON, MULTIPART, *MSGPACK):
                yield Fault(here, f"a body in {media} cannot be decoded")
            if "schema" not in value:
                yield Fault(here, "a body without schema cannot be generated")
            if "encoding" in value:
                yield Fault(pointer(here, "encoding"), "encoding of form fields cannot be generated")
        if MULTIPART in content and len(content) > 1:
            yield Fault(where, f"{MULTIPART} cannot stand beside other media types")
        bodies = [value.get("schema") for value in content.values()]
        if any(body != bodies[0] for body in bodies):
            yield Fault(where, "media types with different schemas cannot be generated")
        elif MULTIPART in content:
            yield from _form(document, bodies[0], pointer(where, "content", MULTIPART, "schema"))
        elif bodies[0] is not None and "$ref" not in bodies[0]:
            for place, keyword in schemas.beyond_structs(document, bodies[0], where):
                yield Fault(place, f"{keyword} needs a second validation: give the body's schema a name")


def _form(document: Document, schema: Any, at: str) -> Iterator[Fault]:
    if not schemas.is_struct(document.resolve(schema)):
        yield Fault(at, "a form without named fields cannot be generated")
    elif "null" in schemas.types(document, schema):
        yield Fault(at, "a form cannot be null")
    for place, keyword in schemas.beyond_structs(document, schema, at):
        yield Fault(place, f"{keyword} of a form field cannot be enforced")


def _responses(document: Document) -> Iterator[Fault]:
    for _, _, node, at in document.operations():
        if not node.get("responses"):
            yield Fault(at, "an operation without responses cannot be generated")
        for status, response in node.get("responses", {}).items():
            where = pointer(at, "responses", status)
            if not re.fullmatch(r"[1-5]\d\d", str(status)):
                yield Fault(where, f"status {status!r} is not a number")
            for media, value in document.resolve(response).get("content", {}).items():
                if places.EVENT_SCHEMA in value and not media.startswith(EVENTS):
                    here = pointer(where, "content", media, places.EVENT_SCHEMA)
                    yield Fault(here, f"only {EVENTS} has events")


def _security(document: Document) -> Iterator[Fault]:
    schemes = document.tree.get("components", {}).get("securitySchemes", {})
    for name, scheme in schemes.items():
        if scheme.get("type") != "http" or scheme.get("scheme", "").lower() != "bearer":
            yield Fault(pointer("", "components", "securitySchemes", name), "only bearer tokens can be generated")
    places = [(document.tree, ""), *((node, at) for _, _, node, at in document.operations())]
    for node, at in places:
        requirements = node.get("security", [])
        where = pointer(at, "security")
        if len(requirements) > 1 or any(len(one) > 1 for one in requirements):
            yield Fault(where, "a choice or combination of security schemes cannot be generated")
        for one in requirements:
            for name, scopes in one.items():
                if name not in schemes:
                    yield Fault(where, f"security scheme {name!r} is not declared")
                if scopes:
                    yield Fault(where, "scopes cannot be enforced")


def _keywords(document: Document) -> Iterator[Fault]:
    """Every keyword of every schema is one that is understood."""
    for schema, at in _schemas(document):
        if not isinstance(schema, dict):
            continue
        for key in schema:
            if key == "nullable":
                yield Fault(pointer(at, key), "nullable has no meaning in OpenAPI 3.1; say type: [..., 'null']")
            elif key not in schemas.KEYWORDS and (not key.startswith("x-") or key.startswith("x-oasgate-")):
                yield Fault(pointer(at, key), f"unknown keyword {key!r}")
        yield from _schema_values(document, schema, at)


def _schema_values(document: Document, schema: Tree, at: str) -> Iterator[Fault]:
    declared = schema.get("type", [])
    for name in declared if isinstance(declared, list) else [declared]:
        if name not in schemas.TYPES:
            yield Fault(pointer(at, "type"), f"unknown type {name!r}")
            return
    for key in ("exclusiveMinimum", "exclusiveMaximum"):
        if isinstance(schema.get(key), bool):
            yield Fault(pointer(at, key), f"{key} is a number in OpenAPI 3.1")
    if "$ref" in schema and not str(schema["$ref"]).startswith(SCHEMAS):
        yield Fault(pointer(at, "$ref"), f"a schema outside {SCHEMAS}: {schema['$ref']}")
    other = frozenset(declared if isinstance(declared, list) else [declared]) - {"object", "null"}
    if other and schemas.is_struct(schema):
        yield Fault(pointer(at, "type"), f"members beside type {min(other)} cannot be generated: use oneOf")
    if not schemas.types(document, schema):
        yield Fault(at, "no value satisfies this schema")
    if "discriminator" in schema:
        branches = schema.get("oneOf", schema.get("anyOf", []))
        found = schemas.discriminator(document, branches) if branches else None
        if not found or found[""] != schema["discriminator"].get("propertyName"):
            yield Fault(pointer(at, "discriminator"), "the branches do not require the member with one value each")


def _schemas(document: Document) -> Iterator[tuple[Any, str]]:
    """Every schema of the document, with those inside it."""
    for name, schema in document.schemas.items():
        yield from _inside(schema, pointer("", "components", "schemas", name))
    for schema, at in places.schemas(document):
        yield from _inside(schema, at)


def _inside(schema: Any, at: str) -> Iterator[tuple[Any, str]]:
    yield schema, at
    if not isinstance(schema, dict):
        return
    for key in ("properties", "patternProperties", "dependentSchemas"):
        for name, member in schema.get(key, {}).items():
            yield from _inside(member, pointer(at, key, name))
    for key in ("allOf", "anyOf", "oneOf", "prefixItems"):
        for index, member in enumerate(schema.get(key, ())):
            yield from _inside(member, pointer(at, key, index))
    for key in [
        "items",
        "additionalProperties",
        "propertyNames",
        "not",
        "if",
        "then",
        "else",
        "contains",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]:
        if key in schema:
            yield from _inside(schema[key], pointer(at, key))


CHECKS: tuple[Check, ...] = (
    _versions,
    places.check,
    _names,
    _keywords,
    _operations,
    _parameter_types,
    _bodies,
    _responses,
    _security,
)

"""The OpenAPI objects of a document, each with its kind: keys that nothing reads are faults, not silence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from codegen.document import METHODS, Document, Tree, pointer
from codegen.faults import Fault

EVENT_SCHEMA = "x-oasgate-event-schema"
VENDOR = {
    "operation": ("x-oasgate-admin", "x-oasgate-catch-all", "x-oasgate-max-body-bytes"),
    "answer": (EVENT_SCHEMA,),
}
_VALUE = ("description", "required", "deprecated", "schema", "example", "examples")
# `links`, `externalDocs` and the texts only inform; `servers` is looked at by `_servers`.
# Component kinds without an entry in _CHILDREN are inert: every use of a path item or callback is a fault.
_KEYS = {
    "document": ("openapi", "info", "servers", "paths", "webhooks", "components", "security", "tags", "externalDocs"),
    "components": (
        *("schemas", "responses", "parameters", "examples", "requestBodies", "headers"),
        *("securitySchemes", "links", "callbacks", "pathItems"),
    ),
    "path item": ("summary", "description", "parameters", *METHODS),
    "operation": (
        *("tags", "summary", "description", "externalDocs", "operationId", "parameters", "requestBody"),
        *("responses", "deprecated", "security"),
    ),
    "parameter": ("name", "in", *_VALUE),
    "header": _VALUE,
    "request body": ("description", "content", "required"),
    "response": ("description", "headers", "content", "links"),
    "body": ("schema", "example", "examples", "encoding"),  # encoding is a fault of its own
    "answer": ("schema", "example", "examples"),
}
# Kind -> key -> kind of the objects there; a key with a star holds them by name or in a list.
_CHILDREN = {
    "document": {"components": "components", "paths*": "path item"},
    "components": {
        "parameters*": "parameter",
        "headers*": "header",
        "requestBodies*": "request body",
        "responses*": "response",
    },
    "path item": {"parameters*": "parameter", **dict.fromkeys(METHODS, "operation")},
    "operation": {"parameters*": "parameter", "requestBody": "request body", "responses*": "response"},
    "request body": {"content*": "body"},
    "response": {"content*": "answer", "headers*": "header"},
}


class Place(NamedTuple):
    """An OpenAPI object where it is written, so one that is referred to is seen once."""

    kind: str
    node: Tree
    at: str  # JSON pointer


def places(document: Document) -> Iterator[Place]:
    """Every object above the schemas, unused components too."""
    return _below("document", document.tree, "")


def _below(kind: str, node: Any, at: str) -> Iterator[Place]:
    if not isinstance(node, dict):
        return
    yield Place(kind, node, at)
    for key, child in _CHILDREN.get(kind, {}).items():
        name = key.removesuffix("*")
        if name not in node:
            continue
        if key == name:
            yield from _below(child, node[name], pointer(at, name))
            continue
        held = node[name]
        for token, value in held.items() if isinstance(held, dict) else enumerate(held or ()):
            if name != "paths" or not str(token).startswith("x-"):
                yield from _below(child, value, pointer(at, name, token))


def schemas(document: Document) -> Iterator[tuple[Any, str]]:
    """Every schema that is no component itself and not inside another, with its pointer."""
    for place in places(document):
        for key in ("schema", EVENT_SCHEMA):
            if key in place.node and place.kind in ("parameter", "header", "body", "answer"):
                yield place.node[key], pointer(place.at, key)


def check(document: Document) -> Iterator[Fault]:
    """Keys that would be dropped."""
    for kind, node, at in places(document):
        # A reference takes texts beside it, and a path item takes none: its operations are read where they stand.
        known = ("$ref", "summary", "description") if "$ref" in node and kind != "path item" else _KEYS[kind]
        for key in node:
            if key.startswith("x-oasgate-") and key not in VENDOR.get(kind, ()):
                yield Fault(pointer(at, key), f"unknown key {key}")
            elif key not in known and not key.startswith("x-"):
                beside = " beside $ref" if known[0] == "$ref" else f" of a {kind}" if key == "$ref" else ""
                yield Fault(pointer(at, key), f"{key}{beside} cannot be generated")
    yield from _servers(document)


def _servers(document: Document) -> Iterator[Fault]:
    """Servers tell clients a host, which changes nothing here; but a path in one stands before every route."""
    for index, server in enumerate(document.tree.get("servers") or ()):
        path = re.sub(r"^([^/]*:)?//[^/]*", "", server.get("url", ""))
        if path.strip("/"):
            at = pointer("", "servers", index, "url")
            yield Fault(at, f"base path {path!r} cannot be generated: write it in the paths")

"""A loaded OpenAPI document: its parsed tree, JSON pointers and references."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml

from codegen import overlay
from codegen.faults import DocumentError, Fault

Tree: TypeAlias = dict[str, Any]

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
SCHEMAS = "#/components/schemas/"


class Site(NamedTuple):
    """An operation in its place."""

    path: str
    method: str  # lower case
    node: Tree
    at: str  # JSON pointer


class Document:
    """Parsed document.

    Attributes:
        tree: the parsed OpenAPI object.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @property
    def schemas(self) -> dict[str, Tree]:
        schemas: dict[str, Tree] = self.tree.get("components", {}).get("schemas", {})
        return schemas

    def operations(self) -> Iterator[Site]:
        """Operations in the document's order of paths, and of methods within one."""
        for path, item in self.tree.get("paths", {}).items():
            if path.startswith("x-"):
                continue  # an extension of the document, not a path
            for method in item:
                if method in METHODS:
                    yield Site(path, method, item[method], pointer("", "paths", path, method))

    def parameters(self, site: Site) -> Iterator[tuple[Tree, str]]:
        """Parameters of an operation and their pointers, those of its path first."""
        base = pointer("", "paths", site.path)
        shared = self.tree["paths"][site.path].get("parameters", [])
        for at, parameters in ((base, shared), (site.at, site.node.get("parameters", []))):
            for index, parameter in enumerate(parameters):
                yield self.resolve(parameter), pointer(at, "parameters", index)

    def reached(self, nodes: Any) -> set[str]:
        """Names of the components that any of these nodes refers to, directly or not."""
        found: set[str] = set()
        stack = [nodes]
        while stack:
            node = stack.pop()
            if isinstance(node, dict):
                reference = node.get("$ref")
                if isinstance(reference, str) and reference not in found:
                    found.add(reference)
                    stack.append(self.lookup(reference))
                stack.extend(node.values())
            elif isinstance(node, list):
                stack.extend(node)
        return {reference.removeprefix(SCHEMAS) for reference in found}

    def lookup(self, reference: str) -> Any:
        """Return what a local reference (`#/a/b`) points at; KeyError if there is nothing."""
        if not reference.startswith("#/"):
            raise KeyError(reference)
        node: Any = self.tree
        for token in reference[2:].split("/"):
            key = token.replace("~1", "/").replace("~0", "~")
            node = node[int(key)] if isinstance(node, list) else node[key]
        return node

    def resolve(self, node: Any) -> Any:
        """Follow references until something that is not one."""
        while isinstance(node, dict) and isinstance(node.get("$ref"), str):
            node = self.lookup(node["$ref"])
        return node


def pointer(base: str, *tokens: str | int) -> str:
    """Append reference tokens to a JSON pointer."""
    return base + "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def read(path: Path) -> Any:
    """Parse a JSON or YAML file."""
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)


def overlaid(tree: Tree, overlays: list[Path], on_stale: Callable[[str], None] | None = None) -> Tree:
    """Apply overlay files in order; stale actions go to ``on_stale`` where it is given.

    Raises:
        DocumentError: an overlay does not fit; the fault's message names its file.
    """
    for path in overlays:
        try:
            tree = overlay.apply(tree, read(path), on_stale)
        except overlay.OverlayError as error:
            raise DocumentError([Fault("", f"{path.name}: {error}")]) from error
    return tree

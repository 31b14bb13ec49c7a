"""Lowered schemas -> models.py, through datamodel-code-generator."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from codegen.document import Tree
from codegen.lowering import Lowering

_OPTIONS = [
    "--input-file-type",
    "openapi",
    "--output-model-type",
    "msgspec.Struct",
    "--preset",
    "standard-py311-20261027",
    "--no-collapse-root-models",
    "--enum-field-as-literal",
    "all",
    "--use-tag-as-union-variant-name",
    "--use-msgspec-tagged-unions",
    "--use-msgspec-nullable-enum-alias",
    "--use-typed-nullable-map-values",
    "--keyword-only",
    "--use-schema-description",
    "--use-field-description",
    "--strict-refs",
    "--disable-warnings",
    "--formatters",
    "builtin",
]
META = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
}
_WIDTH = 116  # of a docstring inside a class, under the line length of 120


def render(lowering: Lowering, header: str) -> str:
    """Return the source of models.py, not yet formatted.

    Raises:
        RuntimeError: the generator refused its input, or did not write a class that it was asked for.
    """
    schemas = lowering.definitions
    document: Tree = {
        "openapi": "3.1.0",
        "info": {"title": "", "version": ""},
        "paths": {},
        "components": {"schemas": schemas},
    }
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "schemas.json"), Path(folder, "models.py")
        source.write_text(json.dumps(document), encoding="utf-8")
        command = [sys.executable, "-m", "datamodel_code_generator", "--input", str(source), "--output", str(target)]
        done = subprocess.run([*command, *_OPTIONS], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"datamodel-code-generator failed:\n{done.stderr}")
        module = ast.parse(target.read_text(encoding="utf-8"))
    written = {name for node in module.body if (name := _defined(node))}
    if missing := set(schemas) - written:
        raise RuntimeError(f"datamodel-code-generator wrote no {', '.join(sorted(missing))}")
    return header + "\n\n".join(_Writer(module, lowering).blocks()) + "\n"


def _defined(node: ast.stmt) -> str | None:
    if isinstance(node, ast.ClassDef):
        return node.name
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return None


class _Polish(ast.NodeTransformer):
    """What the generator has no option for.

    Descriptions only as docstrings, no aliases beside those of the document, no null twice.
    """

    def __init__(self, aliases: dict[str, ast.expr], keyed: dict[str, Tree]) -> None:
        self.aliases = aliases
        self.keyed = keyed

    def visit_Name(self, node: ast.Name) -> ast.expr:
        alias = self.aliases.get(node.id)
        if alias is None:
            return node
        polished: ast.expr = self.visit(ast.parse(ast.unparse(alias), mode="eval").body)
        return polished

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "Meta":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in ("description", "title")]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        members = {ast.unparse(member): member for member in _members(node)}
        last = [members.pop(name) for name in ("UnsetType", "None") if name in members]
        ordered = [*members.values(), *last]
        return functools.reduce(lambda left, right: ast.BinOp(left, ast.BitOr(), right), ordered)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.slice, ast.Tuple) and isinstance(value := node.slice.elts[-1], ast.Name):
            keys = constraints(self.keyed.get(value.id, {}))
            if keys:
                node.slice.elts[0] = ast.parse(f"Annotated[str, Meta({keys})]", mode="eval").body
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "Annotated" and isinstance(node.slice, ast.Tuple):
            kept = [element for element in node.slice.elts if not _is_empty_meta(element)]
            if len(kept) == 1:
                return kept[0]
            node.slice.elts = kept
        return node


def constraints(schema: Tree) -> str:
    """Constraints of a lowered scalar as arguments of `Meta`."""
    return ", ".join(f"{META[key]}={value!r}" for key, value in schema.items() if key in META)


def _members(node: ast.expr) -> list[ast.expr]:
    """Members of a union, in order."""
    if isinstance(node, ast.BinOp):
        return [*_members(node.left), *_members(node.right)]
    return [node]


def _is_empty_meta(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Meta" and not node.keywords
    )


class _Writer:
    """Writes the module anew: the same classes and aliases, with wrapped docstrings."""

    def __init__(self, module: ast.Module, lowering: Lowering) -> None:
        self.module = module
        self.names = set(lowering.definitions) - set(lowering.keyed)
        self.closed = lowering.closed
        self.polish = _Polish(
            {
                node.target.id: node.value
                for node in module.body
                if isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and node.value is not None
                and node.target.id not in self.names
            },
            lowering.keyed,
        )

    def blocks(self) -> list[str]:
        blocks = []
        for node in self.module.body:
            if isinstance(node, ast.ImportFrom | ast.Import):
                blocks.append(ast.unparse(node))
            elif isinstance(node, ast.ClassDef):
                blocks.append(self._class(node))
            elif isinstance(node, ast.AnnAssign) and _defined(node) in self.names and node.value is not None:
                blocks.append(f"{_defined(node)}: TypeAlias = {ast.unparse(self.polish.visit(node.value))}")
        return blocks

    def _class(self, node: ast.ClassDef) -> str:
        if node.name in self.closed:
            node.keywords.append(ast.keyword("forbid_unknown_fields", ast.Constant(True)))
        arguments = ", ".join([*map(ast.unparse, node.bases), *map(ast.unparse, node.keywords)])
        lines = [f"class {node.name}({arguments}):"]
        for statement in node.body:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    lines.append(textwrap.indent(docstring(text), "    "))
                    if statement is node.body[0]:
                        lines.append("")
                case ast.AnnAssign():
                    statement.annotation = self.polish.visit(statement.annotation)
                    lines.append(f"    {ast.unparse(statement)}")
                case _:
                    lines.append(textwrap.indent(ast.unparse(statement), "    "))
        return "\n".join(lines)


def docstring(text: str, width: int = _WIDTH) -> str:
    """A description as a docstring: the document's own lines, long ones wrapped."""
    lines: list[str] = []
    for line in inspect.cleandoc(text).splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        wrapped = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines += wrapped or [""]
    body = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    if len(lines) == 1 and len(body) + 6 <= width and not body.endswith('"'):
        return f'"""{body}"""'
    return f'"""{body}\n"""'

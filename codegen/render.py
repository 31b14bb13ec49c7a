"""Intermediate form -> files of the generated package."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import jinja2
import msgspec

from codegen import models
from codegen.document import Tree
from codegen.ir import Operation, Service
from codegen.lowering import Lowering
from codegen.names import argument, class_name

DOCUMENT = "openapi.json"
_RUFF = ["--quiet", "--isolated", "--line-length", "120", "--target-version", "py311"]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One Litestar route handler: an operation, and those whose paths are tails of its path."""

    operation: Operation
    path: str  # Litestar's form
    tails: tuple[tuple[str, Operation], ...] = ()


def files(service: Service, lowering: Lowering, effective: Tree, package: str) -> dict[str, str]:
    """Return {file name: text}, formatted, the same for the same input."""
    document = json.dumps(effective, indent=2, ensure_ascii=False) + "\n"
    values = {
        "service": service,
        "package": package,
        "digest": hashlib.sha256(document.encode()).hexdigest(),
        "routes": routes(service),
        "allowed": allowed(service),
    }
    environment = _environment()
    written = {
        name: environment.get_template(f"{name}.jinja2").render(values)
        for name in ("__init__.py", "operations.py", "interfaces.py", "routes.py")
    }
    header = environment.get_template("models.py.jinja2").render(values)
    written["models.py"] = models.render(lowering, header)
    return {**_formatted(written, package.partition(".")[0]), DOCUMENT: document}


def routes(service: Service) -> dict[str, tuple[Route, ...]]:
    """Routes of each tag; an operation below a catch-all path has no route of its own."""
    catch_alls = {(o.method, o.path): o for o in service.operations if o.catch_all and o.path.endswith("}")}
    tails: dict[str, list[tuple[str, Operation]]] = {}
    for operation in service.operations:
        base, tail = split_tail(operation.path)
        owner = catch_alls.get((operation.method, base))
        if operation.catch_all and tail and owner:
            tails.setdefault(owner.id, []).append((tail, operation))
    below = {operation.id for members in tails.values() for _, operation in members}
    return {
        tag.name: tuple(
            Route(
                operation=o, path=litestar_path(o), tails=tuple(sorted(tails.get(o.id, ()), key=lambda t: -len(t[0])))
            )
            for o in tag.operations
            if o.id not in below
        )
        for tag in service.tags
    }


def allowed(service: Service) -> dict[str, str]:
    """Litestar path -> value of `Allow`, for the OPTIONS routes."""
    methods: dict[str, list[str]] = {}
    for group in routes(service).values():
        for route in group:
            methods.setdefault(route.path, []).append(route.operation.method)
    return {path: ", ".join([*names, "OPTIONS"]) for path, names in methods.items()}


def split_tail(path: str) -> tuple[str, str]:
    """`/models/{id}/status` -> (`/models/{id}`, `/status`)."""
    end = path.rfind("}") + 1
    return path[:end], path[end:]


def litestar_path(operation: Operation) -> str:
    """`/models/{id}` -> `/models/{id:path}` where the rest of the path belongs to the parameter, else `{id:str}`."""
    kind = "path" if operation.catch_all else "str"
    return re.sub(r"\{([^}]+)\}", lambda match: f"{{{argument(match[1])}:{kind}}}", operation.path)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("codegen"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {
        "py": repr,
        "camel": class_name,
        "argument": argument,
        "paragraphs": _paragraphs,
        "hanging": _hanging,
        "answer": _answer,
    }
    return environment


def _paragraphs(text: str, indent: int) -> str:
    """Description text inside a docstring, wrapped."""
    lines = []
    for line in text.strip().splitlines():
        lines += textwrap.wrap(line, 116 - indent, break_long_words=False, break_on_hyphens=False) or [""]
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return textwrap.indent(text, " " * indent)


def _hanging(text: str, indent: int) -> str:
    """One entry of a list, its further lines four columns in."""
    first, rest = " " * indent, " " * (indent + 4)
    lines = textwrap.wrap(text, 116, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")


def _answer(operation: Operation) -> str:
    """What a handler may return: structs of the success status, a stream where there is one, or bytes."""
    found: dict[str, None] = {}
    for media, types in operation.answer.content.items():
        if media.startswith("text/event-stream"):
            found["AsyncIterator[bytes]"] = None
        elif not media.startswith("text/"):
            found |= dict.fromkeys(one.code for one in types)
    stream = found.pop("AsyncIterator[bytes]", False) is None
    return " | ".join([*found, *(["AsyncIterator[bytes]"] if stream else []), "bytes"])


def _formatted(sources: dict[str, str], first_party: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in sources.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        isort = f"lint.isort.known-first-party=[{json.dumps(first_party)}]"
        _ruff("check", "--fix", "--select", "F401,I", "--config", isort, *_RUFF, folder)
        _ruff("format", *_RUFF, folder)
        return {name: Path(folder, name).read_text(encoding="utf-8") for name in sources}


def _ruff(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "ruff", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ruff {arguments[0]} failed on generated code:\n{done.stdout}{done.stderr}")

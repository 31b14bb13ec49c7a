"""Packages generated from documents of a test, served by the real HTTP layer."""

from __future__ import annotations

import copy
import importlib
import itertools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from litestar import Litestar
from litestar.exceptions import HTTPException
from litestar.testing import TestClient

from codegen import config, generate
from codegen.config import Source
from codegen.document import read
from handlers.http.envelopes import SHAPES, Shape
from handlers.http.server import Server
from handlers.settings import Settings

ROOT = Path(__file__).parents[2]
REAL = next(source for source in config.load(ROOT / "pyproject.toml") if source.name == "sie")
_COUNT = itertools.count()


def real_document() -> dict[str, Any]:
    """The served document, free to change."""
    document: dict[str, Any] = copy.deepcopy(read(REAL.output / "openapi.json"))
    return document


def small(**operation: Any) -> dict[str, Any]:
    """A document with one operation, `POST /things`, whose members the arguments replace."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Small", "version": "1"},
        "paths": {
            "/things": {
                "post": {
                    "operationId": "make",
                    "tags": ["things"],
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}},
                    },
                    "responses": {
                        "200": {"description": "made", "content": answer("Thing")},
                        "400": {"description": "wrong", "content": answer("Fault")},
                    },
                    **operation,
                }
            }
        },
        "components": {
            "schemas": {
                "Thing": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
                "Fault": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
            }
        },
    }


def answer(schema: str) -> dict[str, Any]:
    """`content` of a response with a component as its JSON."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


class Package:
    """A generated package, imported.

    Attributes:
        name: its module name, unused before.
        files: what was generated.
    """

    def __init__(self, folder: Path, document: dict[str, Any], *, overlays: tuple[Path, ...] = ()) -> None:
        self.name = f"generated_in_test_{next(_COUNT)}"
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        source = Source(
            name=self.name,
            document=path,
            overlays=(),
            generator_overlays=overlays,
            package=self.name,
            output=folder / self.name,
        )
        generate.write(source)
        self.output = source.output
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        importlib.invalidate_caches()

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{self.name}.{name}")

    def operation(self, name: str) -> Any:
        return getattr(self.module("operations"), name.upper())

    def client(
        self,
        handlers: Callable[[str], Any] = lambda tag: object(),
        *,
        shapes: Mapping[str, Shape] = SHAPES,
        **settings: Any,
    ) -> TestClient[Litestar]:
        """A client of the package's routes.

        Args:
            handlers: tag -> implementation.
            shapes: envelopes by the name of their schema.
            settings: of the server.
        """
        operations, routes, interfaces = (self.module(name) for name in ("operations", "routes", "interfaces"))
        document = msgspec.json.decode(Path(operations.DOCUMENT).read_bytes())
        serve = Server(operations.ALL, document, Settings(access_log=False, **settings), version="1.2.3", shapes=shapes)
        tags = {name: handlers(name) for name in interfaces.Handlers.__dataclass_fields__}
        return TestClient(
            Litestar(
                routes.build(interfaces.Handlers(**tags), serve),
                openapi_config=None,
                exception_handlers={HTTPException: serve.unrouted},
            ),
            raise_server_exceptions=False,
        )


class Echo:
    """Implements every operation: answers with its own name and arguments."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        async def method(context: Any, *arguments: Any) -> bytes:
            return msgspec.json.encode({"operation": name, "arguments": arguments})

        return method

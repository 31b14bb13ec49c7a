"""Ten changes of the real document: each shows in the server, in the comparison, or in both."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from codegen import diff
from codegen.document import Document
from generated.sie import operations as real
from tests.codegen.world import Echo, Package, answer, real_document

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
ENCODE = {"items": [{"text": "a"}]}


class Change:
    """A changed document and what it becomes.

    Attributes:
        client: of the server generated from it; its handlers echo.
    """

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        self.lines = diff.report(diff.compare(Document(real_document()), Document(document))).splitlines()
        self.package = Package(folder, document)
        self.client: TestClient[Litestar] = self.package.client(lambda tag: Echo())

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        response = self.client.post(path, json=body, headers=headers)
        return response.status_code, response.json()


@pytest.fixture
def document() -> dict[str, Any]:
    return real_document()


@pytest.fixture
def schemas(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


def test_a_field_added(folder: Path, document: dict[str, Any], schemas: dict[str, Any]) -> None:
    schemas["ChatCompletionRequest"]["properties"]["mood"] = {"type": "string", "enum": ["calm", "bold"]}
    change = Change(folder, document)
    assert change.lines == ["schema ChatCompletionRequest (request of proxy_chat)", "  + field mood (optional, string)"]
    status, echoed = change.post("/v1/chat/completions", {**CHAT, "mood": "bold"})
    assert (status, echoed["arguments"][0]["mood"]) == (200, "bold")
    status, refused = change.post("/v1/chat/completions", {**CHAT, "mood": "sad"})
    assert (status, refused["error"]["code"], refused["error"]["param"]) == (400, "invalid_request", "mood")


def test_a_field_renamed(folder: Path, document: dict[str, Any], schemas: dict[str, Any]) -> None:
    members = schemas["ChatCompletionRequest"]["properties"]
    members["min_new_tokens"] = members.pop("min_tokens")
    change = Change(folder, document)
    assert change.lines == [
        "schema ChatCompletionRequest (request of proxy_chat)",
        "  ? field min_tokens looks renamed to min_new_tokens",
        "  + field min_new_tokens (optional, integer|null)",
        "  - field min_tokens",
    ]
    assert change.post("/v1/chat/completions", {**CHAT, "min_new_tokens": 3})[0] == 200
    status, refused = change.post("/v1/chat/completions", {**CHAT, "min_tokens": 3})
    assert (status, refused["error"]["code"], refused["error"]["param"]) == (400, "unsupported_field", "min_tokens")


def test_a_field_narrowed(folder: Path, document: dict[str, Any], schemas: dict[str, Any]) -> None:
    schemas["ChatCompletionRequest"]["properties"]["top_k"]["maximum"] = 100
    change = Change(folder, document)
    assert change.lines[1:] == ["  - top_k: maximum none -> 100 (narrowed)"]
    assert change.post("/v1/chat/completions", {**CHAT, "top_k": 100})[0] == 200
    status, refused = change.post("/v1/chat/completions", {**CHAT, "top_k": 101})
    assert (status, refused["error"]["param"]) == (400, "top_k")


def test_a_field_made_required(folder: Path, document: dict[str, Any], schemas: dict[str, Any]) -> None:
    schemas["EncodeRequest"]["required"].append("params")
    change = Change(folder, document)
    assert change.lines == ["schema EncodeRequest (request of proxy_encode)", "  - field params: made required"]
    assert change.post("/v1/encode/m", {**ENCODE, "params": None})[0] == 200
    status, refused = change.post("/v1/encode/m", ENCODE)
    assert (status, refused["detail"]["code"]) == (400, "INVALID_REQUEST")
    assert "params" in refused["detail"]["message"]


def test_an_enum_value_added(folder: Path, document: dict[str, Any], schemas: dict[str, Any]) -> None:
    schemas["OutputDtype"]["enum"].append("int4")
    change = Change(folder, document)
    assert change.lines[1:] == ['  + enum value "int4"']
    body = {**ENCODE, "params": {"output_dtype": "int4"}}
    assert change.post("/v1/encode/m", body)[1]["arguments"][1]["params"]["output_dtype"] == "int4"
    assert change.post("/v1/encode/m", {**ENCODE, "params": {"output_dtype": "int5"}})[0] == 400


def test_an_operation_added(folder: Path, document: dict[str, Any]) -> None:
    document["paths"]["/v1/classify/{model}"] = {
        "post": {
            "operationId": "classify",
            "tags": ["inference"],
            "parameters": [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}],
            "requestBody": {"required": True, "content": answer("EncodeRequest")},
            "responses": {
                "200": {"description": "", "content": answer("ExtractResponse")},
                "400": {"description": "", "content": answer("RerankError")},
            },
        }
    }
    change = Change(folder, document)
    assert change.lines == [
        "POST /v1/classify/{model}",
        "  + new operation; answers 501 until handlers have `classify`",
    ]
    assert change.post("/v1/classify/m", ENCODE)[1]["operation"] == "classify"
    answered = change.package.client().post("/v1/classify/m", json=ENCODE)
    assert (answered.status_code, set(answered.json())) == (501, {"message"})
    assert '"Implementation" is missing following "InferenceHandlers" protocol member:' in (
        said := missing_by_type(folder, change.package)
    )
    assert "note:     classify\n" in said


def test_a_schema_with_one_of_added(folder: Path, document: dict[str, Any], schemas: dict[str, Any]) -> None:
    schemas["Tagged"] = {"oneOf": [{"$ref": "#/components/schemas/ByText"}, {"$ref": "#/components/schemas/ByNumber"}]}
    schemas["ByText"] = {
        "type": "object",
        "required": ["kind", "text"],
        "properties": {"kind": {"const": "text"}, "text": {"type": "string"}},
    }
    schemas["ByNumber"] = {
        "type": "object",
        "required": ["kind", "number"],
        "properties": {"kind": {"const": "number"}, "number": {"type": "integer"}},
    }
    schemas["Untagged"] = {
        "oneOf": [
            {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
            {"type": "object", "required": ["b"], "properties": {"b": {"type": "integer"}}},
        ]
    }
    schemas["EncodeRequest"]["properties"] |= {
        "tagged": {"$ref": "#/components/schemas/Tagged"},
        "untagged": {"$ref": "#/components/schemas/Untagged"},
    }
    change = Change(folder, document)
    assert "schema Untagged (request of proxy_encode)" in change.lines
    assert "  + field tagged (optional, Tagged)" in change.lines

    def status(**members: Any) -> int:
        return change.post("/v1/encode/m", {**ENCODE, **members})[0]

    assert status(tagged={"kind": "text", "text": "x"}) == 200
    assert status(tagged={"kind": "number", "number": 1}) == 200
    assert status(tagged={"kind": "number", "text": "x"}) == 400
    assert status(tagged={"kind": "other"}) == 400
    assert status(tagged={"text": "x"}) == 400
    assert status(untagged={"a": "x"}) == 200
    assert status(untagged={"b": 1}) == 200
    assert status(untagged={"b": "x"}) == 400
    assert status(untagged={"a": "x", "b": 1}) == 400


def test_a_header_added(folder: Path, document: dict[str, Any]) -> None:
    operation = document["paths"]["/v1/embeddings"]["post"]
    operation["parameters"].append(
        {"name": "X-Team", "in": "header", "required": True, "schema": {"type": "string", "minLength": 2}}
    )
    operation["responses"]["200"]["headers"]["X-Cost"] = {"schema": {"type": "string"}}
    change = Change(folder, document)
    assert change.lines == [
        "POST /v1/embeddings",
        "  + header parameter X-Team (required)",
        "  + answer 200: header X-Cost",
    ]
    body = {"model": "m", "input": "a"}
    assert change.post("/v1/embeddings", body, **{"x-team": "blue"})[0] == 200
    status, refused = change.post("/v1/embeddings", body)
    assert (status, refused["error"]["param"]) == (400, "X-Team")
    status, refused = change.post("/v1/embeddings", body, **{"x-team": "b"})
    assert (status, refused["error"]["param"]) == (400, "X-Team")
    assert "X-Cost" in change.package.operation("proxy_openai_embeddings").responses[200].headers


def test_an_envelope_changed(folder: Path, document: dict[str, Any]) -> None:
    document["paths"]["/v1/rerank"]["post"]["responses"]["400"]["content"] = answer("StandardApiError")
    change = Change(folder, document)
    assert change.lines == ["POST /v1/rerank", "  ~ answer 400: envelope RerankError -> StandardApiError"]
    status, refused = change.post("/v1/rerank", {})
    assert (status, set(refused)) == (400, {"detail"})
    status, refused = change.post("/v2/rerank", {})
    assert (status, set(refused)) == (400, {"message"})


def test_an_operation_removed(folder: Path, document: dict[str, Any]) -> None:
    del document["paths"]["/v1/moderations"]
    change = Change(folder, document)
    assert change.lines == [
        "POST /v1/moderations",
        "  - operation removed; `proxy_moderations` of the handlers is called no more",
    ]
    assert change.client.post("/v1/moderations").status_code == 404
    assert not hasattr(change.package.module("operations"), "PROXY_MODERATIONS")


def missing_by_type(folder: Path, package: Package) -> str:
    """What the type checker says of an implementation with the methods of today's document."""
    methods = [operation.id for operation in real.ALL if operation.tag == "inference"]
    (folder / "wiring.py").write_text(
        "from typing import Any\n"
        f"from {package.name} import interfaces\n"
        "class Implementation:\n"
        + "".join(f"    async def {name}(self, *args: Any, **named: Any) -> Any: ...\n" for name in methods)
        + "handlers: interfaces.InferenceHandlers = Implementation()\n",
        encoding="utf-8",
    )
    (folder / "mypy.ini").write_text("[mypy]\n[mypy-litestar.*]\nfollow_imports = skip\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "cache"), "wiring.py"]
    environment = {"MYPYPATH": str(folder), "PATH": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout

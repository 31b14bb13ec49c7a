"""A third document through the unchanged codegen and HTTP layer: generated, served and fuzzed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from litestar import Litestar
from litestar.testing import TestClient

from codegen.document import read
from handlers.errors import Failure
from handlers.http.envelopes import Shape
from tests.codegen.world import Package
from tests.contract import hooks  # MessagePack for schemathesis

assert hooks.MSGPACK
ROOT = Path(__file__).parents[2]
DOCUMENT = Path(__file__).with_name("garden.yaml")
CONFIG = schemathesis.Config.from_dict({"generation": {"max-examples": 100, "database": "none"}})
SCHEMA = schemathesis.openapi.from_dict(read(DOCUMENT), config=CONFIG)
ANSWERS: Counter[tuple[str, int]] = Counter()


def refusal(failure: Failure) -> dict[str, Any]:
    """The document's own envelope."""
    return {"message": failure.message} | ({"param": failure.param} if failure.param else {})


class Beds:
    """The handlers of the tag ``beds``; plants are kept in memory."""

    def __init__(self, models: Any) -> None:
        self.models = models
        self.grown: dict[str, dict[int, Any]] = {}

    async def plant(self, context: Any, bed: str, number: str, body: Any) -> Any:
        if under := getattr(body, "under", None):
            # members that the document does not have are not kept, and without them two may be the same
            body.under = [one for place, one in enumerate(under) if one not in under[:place]]
        self.grown.setdefault(bed, {})[int(number)] = body
        return self.models.Planted(bed=bed, number=int(number), season=context.header("x-season"), plant=body)

    async def list_plants(self, context: Any, bed: str) -> bytes:
        at_most = int(float(context.query("at_most") or 2))  # 2.0 is an integer to JSON Schema
        return msgspec.json.encode({"plants": list(self.grown.get(bed, {}).values())[:at_most]})


class Sums:
    """The handlers of the tag ``sums``."""

    async def reckon(self, context: Any, body: list[int] | None) -> bytes:
        return msgspec.json.encode({"sum": sum(body or ()), "class": "integer"})


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> TestClient[Litestar]:
    package = Package(tmp_path_factory.mktemp("garden"), read(DOCUMENT))
    implementations = {"beds": Beds(package.module("models")), "sums": Sums()}
    return package.client(implementations.__getitem__, shapes={"Refusal": Shape("message", refusal)})


@SCHEMA.parametrize()
@settings(suppress_health_check=list(HealthCheck))
def test_every_operation_keeps_its_contract(case: schemathesis.Case, garden: TestClient[Litestar]) -> None:
    response = case.call_and_validate(base_url="http://garden.test", app=garden.app)
    ANSWERS[case.operation.definition.raw["operationId"], response.status_code] += 1


def test_answers_and_refusals_were_both_seen() -> None:
    assert {name for name, status in ANSWERS if status in (200, 201)} == {"plant", "list_plants", "reckon"}
    assert {name for name, status in ANSWERS if status == 422} == {"plant", "list_plants", "reckon"}


def test_rules_that_no_struct_holds_are_kept(garden: TestClient[Litestar]) -> None:
    url = "/beds/north/plants/1"
    tree = {"kind": "tree", "height": 3}
    assert garden.put(url, json=tree).status_code == 201
    for more in (
        {"grafted-on": "quince"},  # without its year
        {"under": [{"kind": "herb"}, {"kind": "herb"}]},  # twice the same
        {"under": [{"kind": "herb", "from": {"france": True}}]},
        {"height": 0},
        {"leaves": 5},
    ):
        refused = garden.put(url, json=tree | more)
        assert refused.status_code == 422, more
        assert refused.json()["message"]
    deep = {"kind": "herb", "beside": {"kind": "herb", "smell": None, "beside": {"kind": "herb", "smell": "mint"}}}
    assert garden.put(url, json=deep).json()["plant"] == deep
    assert garden.get("/beds/north/plants").json() == {"plants": [deep]}


def test_a_body_that_is_not_required_can_be_left_out(garden: TestClient[Litestar]) -> None:
    assert garden.post("/reckon").json() == {"sum": 0, "class": "integer"}
    assert garden.post("/reckon", json=[1, 2]).json()["sum"] == 3
    assert garden.put("/beds/north/plants/1").status_code == 422


@pytest.mark.parametrize("name", ["sie", "inflection"])
def test_codegen_names_no_contract(name: str) -> None:
    """Neither the document, nor an operation, a path or a schema of it."""
    effective = msgspec.json.decode((ROOT / "generated" / name / "openapi.json").read_bytes())
    operations = [one for item in effective["paths"].values() for one in item.values() if isinstance(one, dict)]
    named = {one["operationId"] for one in operations if "operationId" in one}
    named |= effective["components"]["schemas"].keys() - {"ValidationError"}  # msgspec has one, too
    named |= {path for path in effective["paths"] if path != "/"}
    sources = [path for path in (ROOT / "codegen").rglob("*") if path.suffix in (".py", ".jinja2")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert len(sources) > 20
    assert [one for one in sorted(named) if re.search(rf"(?<!\w){re.escape(one)}(?!\w)", text)] == []
    assert not re.search(rf"(?<![a-z]){name}(?![a-z])", text, re.IGNORECASE)

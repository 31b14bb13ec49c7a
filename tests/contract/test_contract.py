"""The running server against the document it serves, for every operation that works."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from generated.sie import operations
from tests.contract.hooks import administered, affordable, answerable
from tests.contract.obedience import OBEDIENT
from tests.live import ADMIN_KEY, EMBEDDING_MODEL, KEY
from tests.pending import PENDING

UNSERVED = [operation for operation in operations.ALL if operation.id in PENDING and not operation.websocket]
CONFIG = schemathesis.Config.from_path(Path(__file__).with_name("schemathesis.toml"))
SCHEMA = schemathesis.openapi.from_path(operations.DOCUMENT, config=CONFIG)

# How often each operation answered with which status
ANSWERS: defaultdict[str, Counter[int]] = defaultdict(Counter)


@pytest.fixture(scope="module", autouse=True)
def _pools_go_again(base_url: str) -> Iterator[None]:
    """The pools that the fuzzer creates are not left to the tests that share the server."""
    yield
    admin = {"authorization": f"Bearer {ADMIN_KEY}"}
    for pool in httpx.get(f"{base_url}/v1/pools", headers={"authorization": f"Bearer {KEY}"}).json()["pools"]:
        if pool["spec"]["name"] != "default":
            httpx.delete(f"{base_url}/v1/pools/{pool['spec']['name']}", headers=admin)


@SCHEMA.exclude(operation_id=sorted(PENDING)).parametrize()
@settings(suppress_health_check=list(HealthCheck))
@pytest.mark.timeout(900)
def test_operation_keeps_its_contract(case: schemathesis.Case, base_url: str) -> None:
    affordable(case)
    answerable(case)
    administered(case)
    response = case.call_and_validate(base_url=base_url)
    ANSWERS[case.operation.definition.raw["operationId"]][response.status_code] += 1


@pytest.mark.parametrize("operation", OBEDIENT)
def test_contract_was_tested_on_answers_too(operation: str) -> None:
    assert operation in ANSWERS, "runs after the tests above"
    assert ANSWERS[operation][200] >= 3, ANSWERS[operation]


@pytest.mark.parametrize(("operation", "status"), [("create_pool", 201), ("resolve_config", 200)])
def test_admin_operations_were_tested_on_answers_too(operation: str, status: int) -> None:
    assert operation in ANSWERS, "runs after the tests above"
    assert ANSWERS[operation][status] >= 1, ANSWERS[operation]


@pytest.mark.parametrize("operation", UNSERVED, ids=lambda operation: operation.id)
def test_pending_operation_answers_501_in_an_envelope(operation: operations.Operation, base_url: str) -> None:
    path = operation.path.replace("{model}", EMBEDDING_MODEL).replace("{id}", "some").replace("{name}", "some")
    headers = {"authorization": f"Bearer {ADMIN_KEY if operation.admin else KEY}"}
    response = httpx.request(operation.method, base_url + path, headers=headers)
    assert response.status_code == 501, f"{operation.id} works now: take it out of PENDING"
    assert {"error", "detail", "message"} & set(response.json())


def test_served_document_is_the_tested_one(base_url: str) -> None:
    served = httpx.get(f"{base_url}/openapi.json")
    assert served.content == Path(operations.DOCUMENT).read_bytes()

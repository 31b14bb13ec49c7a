"""The running server against the document it serves, for every operation that works."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from generated.sie import operations
from tests.contract.hooks import affordable
from tests.live import ADMIN_KEY, EMBEDDING_MODEL, KEY

# Operations whose issue has not come yet: they answer 501 in their envelope, which no document can promise.
PENDING = {
    "list_pools",
    "create_pool",
    "get_pool",
    "delete_pool",
    "renew_pool",
    "get_bundle_configs",
    "get_bundle_config",
    "get_model_configs",
    "get_model_config_or_status",
    "get_model_config_status",
    "resolve_config",
    "status_page",
    "ws_cluster_status",
}

UNSERVED = [operation for operation in operations.ALL if operation.id in PENDING and not operation.websocket]
CONFIG = schemathesis.Config.from_path(Path(__file__).with_name("schemathesis.toml"))
SCHEMA = schemathesis.openapi.from_path(operations.DOCUMENT, config=CONFIG)


@SCHEMA.exclude(operation_id=sorted(PENDING)).parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.timeout(900)
def test_operation_keeps_its_contract(case: schemathesis.Case, base_url: str) -> None:
    affordable(case)
    case.call_and_validate(base_url=base_url)


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

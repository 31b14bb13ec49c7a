"""The running server against its second document."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from generated.inflection import operations
from tests.contract.hooks import affordable
from tests.contract.inflection import GOOD, Obedience

PREFIX = "/inflection"
CONFIG = schemathesis.Config.from_path(Path(__file__).with_name("schemathesis.toml"))
FIELDS = json.loads(Path(operations.DOCUMENT).read_bytes())["components"]["schemas"]["ChatCompletionRequest"][
    "properties"
]
SCHEMA = schemathesis.openapi.from_path(operations.DOCUMENT, config=CONFIG)
ANSWERS: Counter[tuple[str, int]] = Counter()

TAKEN: Counter[str] = Counter()
"""How often each field was in a request that was answered."""
obedient = Obedience()


def obey(case: schemathesis.Case) -> None:
    """Make two of three well-formed requests ones that the engine can work on."""
    body: Any = case.body
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    if not positive or not isinstance(body, dict) or zlib.crc32(repr(body).encode()) % 3 == 0:
        return
    obedient(body)


@SCHEMA.parametrize()
@settings(suppress_health_check=list(HealthCheck))
@pytest.mark.timeout(900)
def test_operation_keeps_its_contract(case: schemathesis.Case, base_url: str) -> None:
    obey(case)
    affordable(case)
    response = case.call_and_validate(base_url=base_url + PREFIX)
    ANSWERS[case.operation.definition.raw["operationId"], response.status_code] += 1
    if response.status_code == 200 and isinstance(case.body, dict):
        TAKEN.update(name for name, value in case.body.items() if value is not None)


def test_every_field_was_in_a_request_that_was_answered() -> None:
    assert GOOD.keys() == FIELDS.keys()
    assert FIELDS.keys() - TAKEN.keys() == set(), ANSWERS


def test_contract_was_tested_on_answers_and_refusals() -> None:
    assert ANSWERS["create_chat_completion", 200] >= 3, ANSWERS
    assert ANSWERS["create_chat_completion", 422] >= 3, ANSWERS


def test_served_document_is_the_tested_one(base_url: str) -> None:
    served = httpx.get(f"{base_url}{PREFIX}/openapi.json")
    assert served.content == Path(operations.DOCUMENT).read_bytes()

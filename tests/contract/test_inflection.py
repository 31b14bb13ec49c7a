"""The running server against its second document."""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from generated.inflection import operations
from tests.contract import obedience
from tests.contract.hooks import affordable
from tests.live import CHAT_MODEL

PREFIX = "/inflection"
CONFIG = schemathesis.Config.from_path(Path(__file__).with_name("schemathesis.toml"))
SCHEMA = schemathesis.openapi.from_path(operations.DOCUMENT, config=CONFIG)
ANSWERS: Counter[tuple[str, int]] = Counter()

NOT_HERE = (
    "chat_template",
    "continue_final_message",
    "guided_choice",
    "guided_decoding_backend",
    "guided_grammar",
    "guided_json",
    "guided_meta",
    "guided_regex",
    "guided_whitespace_pattern",
    "kv_transfer_params",
    "length_penalty",
    "mm_processor_kwargs",
    "priority",
    "stop_token_ids",
    "structural_tag",
    "timeout_sec",
    "truncate_prompt_tokens",
    "use_beam_search",
    "vllm_xargs",
)
"""Fields whose random values are refused for good reasons, or that would be: other tests show what they do."""


def obey(case: schemathesis.Case) -> None:
    """Make two of three well-formed requests ones that the engine can work on."""
    body: Any = case.body
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    if not positive or not isinstance(body, dict) or zlib.crc32(repr(body).encode()) % 3 == 0:
        return
    obedience.chat(body)
    for name in NOT_HERE:
        body.pop(name, None)
    if body.get("stream"):
        body.pop("prompt_logprobs", None)
    if body.get("tools") or body.get("response_format"):
        body.pop("allowed_token_ids", None)
        body.pop("bad_words", None)
    body["model"] = CHAT_MODEL
    if body.get("allowed_token_ids"):
        body["allowed_token_ids"] = [token % 1000 for token in body["allowed_token_ids"]]


@SCHEMA.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.timeout(900)
def test_operation_keeps_its_contract(case: schemathesis.Case, base_url: str) -> None:
    affordable(case)
    obey(case)
    response = case.call_and_validate(base_url=base_url + PREFIX)
    ANSWERS[case.operation.definition.raw["operationId"], response.status_code] += 1


def test_contract_was_tested_on_answers_and_refusals() -> None:
    assert ANSWERS["create_chat_completion", 200] >= 3, ANSWERS
    assert ANSWERS["create_chat_completion", 422] >= 3, ANSWERS


def test_served_document_is_the_tested_one(base_url: str) -> None:
    served = httpx.get(f"{base_url}{PREFIX}/openapi.json")
    assert served.content == Path(operations.DOCUMENT).read_bytes()

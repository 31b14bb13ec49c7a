"""Which error leaves in which shape: every error schema of the document, held against the schema itself."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec
import pytest

from engines.protocol.catalog import BundleConflict, UnknownBundle, UnknownModel, UnknownProfile
from engines.protocol.cluster import DispatchError
from engines.protocol.events import Failed, FailureCode
from generated.sie import operations
from handlers import docs, errors
from handlers.errors import Failure
from handlers.http.context import RequestContext
from handlers.http.plan import Plan
from handlers.http.respond import Responder
from handlers.settings import Settings

DOCUMENT: dict[str, Any] = msgspec.json.decode(docs.document())
SCHEMAS = DOCUMENT["components"]["schemas"]
PLANS = {operation.id: Plan(operation, SCHEMAS) for operation in operations.ALL}
RESPOND = Responder(Settings(), "1.2.3")

FAILURES = {
    "invalid field": errors.InvalidField("a[0].b", "Expected `str`"),
    "unsupported field": errors.UnsupportedField("a"),
    "invalid input": errors.InvalidInput("empty", "items[0]"),
    "model not found": errors.ModelNotFound("x"),
    "pool not found": errors.PoolNotFound("x"),
    "unauthorized": errors.Unauthorized("x"),
    "forbidden": errors.Forbidden("x"),
    "misconfigured": Failure(500, "server_misconfigured", "x", native="GATEWAY_AUTH_MISCONFIGURED"),
    "too large": errors.PayloadTooLarge("x"),
    "media type": errors.UnsupportedMediaType("text/plain", ["application/json"]),
    "not implemented": errors.NotImplementedYet("x"),
    "load failed": errors.LoadFailed("x", error_class="OutOfMemory", attempts=3, permanent=False),
    "gpu": errors.Capacity("x", None, native="GPU_NOT_CONFIGURED", details={"gpu": "g", "configured_gpu_types": []}),
    "all items": errors.AllItemsFailed([(0, "x", "INVALID_INPUT"), (1, None, None)]),
    "internal": errors.Internal(),
    "timeout": errors.Timeout(retry_after=5),
    "conflict": errors.from_catalog(BundleConflict("x", ["a", "b"])),
}
CODES: tuple[FailureCode, ...] = FailureCode.__args__  # type: ignore[attr-defined]
FAILURES |= {f"failed {code}": errors.from_failed(Failed(request_id="r", code=code, message="x")) for code in CODES}
FAILURES |= {
    f"native {code}": errors.from_failed(Failed(request_id="r", code=code, message="x"), native=True) for code in CODES
}
FAILURES |= {
    f"dispatch {code}": errors.from_dispatch(DispatchError(code, "x"))
    for code in ("provisioning", "backpressure", "queue_unavailable")
}


def answer(operation: str, failure: Failure) -> tuple[int, dict[str, str], Any]:
    plan = PLANS[operation]
    made = RESPOND.failure(plan.settle(failure), RequestContext(plan.operation, {}), failure, None)
    return made.status, {k.decode(): v.decode() for k, v in made.headers}, msgspec.json.decode(made.body)


def declared(operation: operations.Operation, status: int) -> Any:
    row = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
    return row.get(str(status), {}).get("content", {}).get("application/json", {}).get("schema")


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_every_failure_of_every_operation_is_as_the_document_says(failure: Failure) -> None:
    for operation in operations.ALL:
        if operation.websocket or not any(status >= 400 for status in operation.responses):
            continue
        status, _, body = answer(operation.id, failure)
        if operation.id == "resolve_config" and status in {404, 409}:
            continue  # its shapes have members that only its handler knows
        schema = declared(operation, status)
        if schema is None:
            assert status in {500, 501}, f"{operation.id} declares no {status}"
            continue
        validator = jsonschema_rs.validator_for({**schema, "components": {"schemas": SCHEMAS}})
        assert validator.is_valid(body), f"{operation.id} {status}: {body}"


@pytest.mark.parametrize(
    ("operation", "failure", "status", "body"),
    [
        (
            "proxy_encode",
            FAILURES["failed MODEL_LOADING"],
            503,
            {"error": {"code": "MODEL_LOADING", "message": "x"}},
        ),
        (
            "proxy_encode",
            FAILURES["dispatch provisioning"],
            503,
            {"error": {"code": "PROVISIONING", "message": "x"}},
        ),
        (
            "proxy_encode",
            FAILURES["dispatch backpressure"],
            503,
            {"detail": {"code": "QUEUE_UNAVAILABLE", "message": "x"}},
        ),
        (
            "proxy_encode",
            FAILURES["gpu"],
            503,
            {"detail": {"code": "GPU_NOT_CONFIGURED", "message": "x", "gpu": "g", "configured_gpu_types": []}},
        ),
        (
            "proxy_encode",
            FAILURES["all items"],
            500,
            {
                "error": "all_items_failed",
                "details": [
                    {"item_index": 0, "error": "x", "code": "INVALID_INPUT"},
                    {"item_index": 1, "error": None, "code": None},
                ],
            },
        ),
        (
            "proxy_encode",
            FAILURES["conflict"],
            409,
            {"detail": {"code": "BUNDLE_ROUTING_CONFLICT", "message": "x", "compatible_bundles": ["a", "b"]}},
        ),
        ("proxy_rerank", FAILURES["timeout"], 504, {"message": "No result in time (overall_timeout)"}),
        ("proxy_rerank_v2", FAILURES["invalid field"], 400, {"message": "a[0].b: Expected `str`"}),
        (
            "proxy_chat",
            FAILURES["failed context_exceeded"],
            400,
            {
                "error": {
                    "message": "x",
                    "type": "context_length_exceeded",
                    "param": None,
                    "code": "context_exceeded",
                }
            },
        ),
    ],
)
def test_failure_in_its_shape(operation: str, failure: Failure, status: int, body: object) -> None:
    assert answer(operation, failure)[::2] == (status, body)


@pytest.mark.parametrize("operation", ["proxy_encode", "proxy_generate", "proxy_chat"])
def test_load_failure_is_read_by_both_kinds_of_sdk(operation: str) -> None:
    status, headers, body = answer(operation, FAILURES["load failed"])
    assert status == 502
    error = body["error"]
    assert error["code"] == "MODEL_LOAD_FAILED"
    assert (error["error_class"], error["attempts"], error["permanent"]) == ("OutOfMemory", 3, False)
    assert error["message"] == "x"
    assert headers["x-sie-error-code"] == "MODEL_LOAD_FAILED"
    assert headers["x-sie-error-version"] == "1.2.3"
    assert headers["x-should-retry"] == "false"
    assert "retry-after" not in headers


def test_pinned_wait_is_short_for_openai_and_whole_for_the_native_sdk() -> None:
    _, headers, _ = answer("proxy_chat", FAILURES["dispatch provisioning"])
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("60", "5000")
    _, headers, _ = answer("proxy_encode", FAILURES["dispatch provisioning"])
    assert headers["retry-after"] == "60"
    assert "retry-after-ms" not in headers


@pytest.mark.parametrize(
    ("code", "status", "native_status"),
    [
        ("invalid_request", 400, 400),
        ("unsupported_field", 400, 400),
        ("unknown_lora_adapter", 400, 400),
        ("context_exceeded", 400, 400),
        ("INVALID_INPUT", 400, 400),
        ("model_not_found", 404, 404),
        ("PAYLOAD_TOO_LARGE", 413, 413),
        ("RESOURCE_EXHAUSTED", 503, 503),
        ("MODEL_LOADING", 503, 503),
        ("LORA_LOADING", 503, 503),
        ("MODEL_LOAD_FAILED", 502, 502),
        ("cancelled", 408, 503),
        ("transport_failure", 503, 503),
        ("malformed_worker_response", 500, 500),
        ("first_chunk_timeout", 504, 504),
        ("inter_chunk_timeout", 504, 504),
        ("overall_timeout", 504, 504),
        ("inference_error", 500, 500),
    ],
)
def test_status_of_what_a_worker_reports(code: FailureCode, status: int, native_status: int) -> None:
    assert FAILURES[f"failed {code}"].status == status
    assert FAILURES[f"native {code}"].status == native_status


def test_worker_hint_replaces_the_fixed_wait() -> None:
    failed = Failed(request_id="r", code="RESOURCE_EXHAUSTED", message="x", retry_after=12)
    assert errors.from_failed(failed).retry_after == 12


@pytest.mark.parametrize(
    ("error", "status", "native", "param"),
    [
        (UnknownModel("org/x"), 404, "MODEL_NOT_FOUND", "model"),
        (UnknownProfile("Model 'm' has no profile 'p'"), 400, "INVALID_REQUEST", "profile"),
        (UnknownBundle("b"), 404, "BUNDLE_NOT_FOUND", "model"),
        (BundleConflict("x", ["a"]), 409, "BUNDLE_ROUTING_CONFLICT", "model"),
    ],
)
def test_catalog_errors_become_failures(error: LookupError, status: int, native: str, param: str) -> None:
    failure = errors.from_catalog(error)
    assert (failure.status, failure.native, failure.param) == (status, native, param)

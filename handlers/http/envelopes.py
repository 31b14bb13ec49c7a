"""Error envelopes: the shape that an operation declares for a status decides how a failure is written.

A shape is found by the name of its schema (contract A.1). Another document may register its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..errors import Failure

Family = Literal["openai", "message", "detail"]
AUTH_CODES: Final = frozenset({"UNAUTHORIZED", "FORBIDDEN", "GATEWAY_AUTH_MISCONFIGURED"})
_SDK_RETRIES: Final = frozenset({"PROVISIONING", "RESOURCE_EXHAUSTED", "MODEL_LOADING", "LORA_LOADING"})


@dataclass(frozen=True, slots=True)
class Shape:
    """How failures are written.

    Args:
        family: The kind of surface that uses it.
        write: Failure to JSON object.
        fits: Where a status declares several shapes, the first that fits is used.
    """

    family: Family
    write: Callable[[Failure], dict[str, Any]]
    fits: Callable[[Failure], bool] = lambda failure: True


def named(failure: Failure) -> str:
    """The message; that of a refused field begins with its name where the text has it nowhere."""
    param = failure.param
    if failure.status != 400 or param is None or param in failure.message:
        return failure.message
    return f"{param}: {failure.message}"


def openai(failure: Failure) -> dict[str, Any]:
    """E1: ``{"error": {"message", "type", "param", "code"}}``."""
    error = {"message": failure.message, "type": failure.type, "param": failure.param, "code": failure.code}
    return {"error": error | {key: value for key, value in failure.details.items() if key != "items"}}


def detail(failure: Failure) -> dict[str, Any]:
    """E2: ``{"detail": {"code", "message", ...}}``."""
    body: dict[str, Any] = {"code": failure.native, "message": named(failure)}
    if failure.status == 400 and failure.param is not None:
        body["param"] = failure.param
    return {"detail": body | failure.details}


def retryable(failure: Failure) -> dict[str, Any]:
    """E3: ``{"error": {"code", "message"}}``, the 503 that the SDK of the origin retries."""
    return {"error": {"code": failure.native, "message": failure.message}}


def load_failed(failure: Failure) -> dict[str, Any]:
    """E4: ``{"error": {"code", "message", "error_class", "attempts", "permanent"}}``, with the OpenAI keys as well."""
    facts = {"error_class": None, "attempts": 1, "permanent": failure.terminal} | failure.details
    error = {"code": failure.native, "message": failure.message, "type": failure.type, "param": failure.param}
    return {"error": error | facts}


def all_items_failed(failure: Failure) -> dict[str, Any]:
    """E5: ``{"error": "all_items_failed", "details": [{"item_index", "error", "code"}]}``."""
    return {"error": "all_items_failed", "details": failure.details.get("items", [])}


def message(failure: Failure) -> dict[str, Any]:
    """E6: ``{"message"}``."""
    return {"message": named(failure)}


def _not_auth(failure: Failure) -> bool:
    return failure.native not in AUTH_CODES


SHAPES: Final[Mapping[str, Shape]] = {
    "OpenAIErrorEnvelope": Shape("openai", openai, _not_auth),
    "OpenAIModelLoadFailedEnvelope": Shape("openai", load_failed),
    "RerankError": Shape("message", message, _not_auth),
    "StandardApiError": Shape("detail", detail),
    "BundleConflictResponse": Shape("detail", detail),
    "ModelNotFoundResponse": Shape("detail", detail),
    "ResolveModelNotFoundResponse": Shape("detail", detail),
    "ResolveBundleConflictResponse": Shape("detail", detail),
    "GpuNotConfiguredError": Shape("detail", detail, lambda f: f.native == "GPU_NOT_CONFIGURED"),
    "GatewayErrorResponse": Shape("detail", retryable, lambda f: f.native in _SDK_RETRIES),
    "GatewayModelLoadFailedResponse": Shape("detail", load_failed),
    "AllItemsFailedResponse": Shape("detail", all_items_failed, lambda f: f.native == "all_items_failed"),
}

_WRAPPED: Final[Mapping[str, tuple[str, str]]] = {
    "INVALID_INPUT": ("invalid_request_error", "invalid_request"),
    "INPUT_TOO_LONG": ("invalid_request_error", "invalid_request"),
    "PAYLOAD_TOO_LARGE": ("invalid_request_error", "payload_too_large"),
    "MODEL_NOT_FOUND": ("invalid_request_error", "model_not_found"),
    "BUNDLE_ROUTING_CONFLICT": ("invalid_request_error", "invalid_request"),
    "POOL_NOT_FOUND": ("invalid_request_error", "invalid_request"),
    "BUNDLE_NOT_FOUND": ("invalid_request_error", "invalid_request"),
    "PROVISIONING": ("server_error", "provisioning"),
    "GATEWAY_TIMEOUT": ("server_error", "overall_timeout"),
    "RATE_LIMIT": ("rate_limit_error", "rate_limit_exceeded"),
}
_OURS: Final = AUTH_CODES | {"INVALID_REQUEST", "UNSUPPORTED_MEDIA_TYPE", "NOT_IMPLEMENTED"}


def wrapped(failure: Failure) -> Failure:
    """A native failure as the OpenAI-shaped surfaces that wrap the native path tell it (contract A.6)."""
    if failure.native in _OURS:
        return failure
    type_, code = _WRAPPED.get(failure.native, ("server_error", "transport_failure"))
    told = Failure(
        failure.status,
        code,
        failure.message,
        param=failure.param,
        type=type_,
        native=failure.native,
        retry_after=failure.retry_after,
        headers=failure.headers,
        details=failure.details,
        terminal=failure.terminal,
    )
    return told.with_traceback(failure.__traceback__)


def with_auth(body: dict[str, Any], failure: Failure, family: Family) -> dict[str, Any]:
    """A refused token in the declared shape, plus what the SDKs of the surface read."""
    body = detail(failure) | body
    if family == "openai":
        body |= openai(failure)
    elif family == "message":
        body |= message(failure)
    return body

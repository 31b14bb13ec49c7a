"""Domain errors. Each knows its status and both of its names; which envelope carries it is decided by the operation.

A failure has two codes because two families of surfaces exist: ``code`` is the OpenAI-shaped one (contract A.3),
``native`` the upper-case one of encode, score, extract, pools and configs, and of ``X-SIE-Error-Code`` (contract A.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from engines.protocol.catalog import BundleConflict, UnknownBundle, UnknownModel, UnknownProfile
from engines.protocol.cluster import DispatchError
from engines.protocol.events import Failed
from engines.protocol.pools import PoolsUnavailable, UnknownPool

_NATIVE: Final = {
    "invalid_request": "INVALID_REQUEST",
    "unsupported_field": "INVALID_REQUEST",
    "unknown_lora_adapter": "INVALID_REQUEST",
    "context_exceeded": "INVALID_INPUT",
    "transport_failure": "QUEUE_UNAVAILABLE",
    "first_chunk_timeout": "GATEWAY_TIMEOUT",
    "inter_chunk_timeout": "GATEWAY_TIMEOUT",
    "overall_timeout": "GATEWAY_TIMEOUT",
    "cancelled": "QUEUE_UNAVAILABLE",
    "malformed_worker_response": "INTERNAL_SERVER_ERROR",
    "inference_error": "INTERNAL_SERVER_ERROR",
    "rate_limit_exceeded": "RATE_LIMIT",
}
_TYPES: Final = {
    "model_not_found": "model_not_found",
    "context_exceeded": "context_length_exceeded",
    "rate_limit_exceeded": "rate_limit_error",
    "cancelled": "server_error",
    "not_implemented": "server_error",
}
_TERMINAL: Final = frozenset({409, 413, 501, 502})


class Failure(Exception):
    """An answer other than success.

    Args:
        status: HTTP status. One that the operation does not declare is replaced by the nearest it does.
        code: OpenAI-shaped code, or an upper-case code that both families share.
        message: For people.
        param: Path of the request field at fault, such as ``messages[0].role``.
        place: The field or header at fault where contract A.4 has no ``param``, for contracts that name it.
        type: OpenAI error type; derived from code and status when ``None``.
        native: Upper-case code; derived from ``code`` when ``None``.
        retry_after: Seconds after which a retry can help; ``None``: no ``Retry-After``.
        headers: Further response headers.
        details: Further keys of the envelope (``compatible_bundles``, ``error_class``, ``attempts``, ``permanent``).
        terminal: A retry cannot help (``x-should-retry: false``); derived from the status when ``None``.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        place: str | None = None,
        type: str | None = None,
        native: str | None = None,
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
        details: dict[str, Any] | None = None,
        terminal: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.place = place
        self.type = type or _TYPES.get(code) or ("invalid_request_error" if status < 500 else "server_error")
        self.native = native or _NATIVE.get(code) or code.upper()
        self.retry_after = retry_after
        self.headers = headers or {}
        self.details = details or {}
        self.terminal = (status in _TERMINAL) if terminal is None else terminal


class InvalidField(Failure):
    """400: a value is missing, has the wrong type, is out of range or breaks a rule with other fields."""

    def __init__(self, param: str | None, message: str, *, place: str | None = None) -> None:
        super().__init__(400, "invalid_request", message, param=param, place=place)


class UnsupportedField(Failure):
    """400: a field, or a value of it, that this operation or this model does not support."""

    def __init__(self, param: str, message: str | None = None) -> None:
        super().__init__(
            400, "unsupported_field", message or f"'{param}' is not supported by this endpoint", param=param
        )


class InvalidInput(Failure):
    """400 ``INVALID_INPUT`` of the native surfaces: the input itself cannot be worked on."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(400, "invalid_request", message, param=param, native="INVALID_INPUT")


class ModelNotFound(Failure):
    """404: no model of the catalog has that name."""

    def __init__(self, name: str, message: str | None = None) -> None:
        super().__init__(404, "model_not_found", message or f"Model not found: {name}", param="model")


class PoolNotFound(Failure):
    """404: no pool has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(404, "invalid_request", f"Pool '{name}' not found", param="pool", native="POOL_NOT_FOUND")


class PoolForbidden(Failure):
    """403: the pool is the operator's, or there may be no more."""

    def __init__(self, message: str, native: str = "POOL_OPERATION_FORBIDDEN") -> None:
        super().__init__(403, "forbidden", message, type="invalid_request_error", native=native)


class Unauthorized(Failure):
    """401: the bearer token is missing or wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(401, "unauthorized", message, headers={"www-authenticate": "Bearer"})


class Forbidden(Failure):
    """403: the token is valid and does not suffice."""

    def __init__(self, message: str, code: str = "FORBIDDEN") -> None:
        super().__init__(403, "forbidden", message, native=code)


class PayloadTooLarge(Failure):
    """413: the body, or one item of it, is larger than the operation takes."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(413, "invalid_request", message, param=param, native="PAYLOAD_TOO_LARGE")


class UnsupportedMediaType(Failure):
    """415: the operation does not take that ``Content-Type``."""

    def __init__(self, media_type: str, supported: Sequence[str]) -> None:
        super().__init__(
            415,
            "invalid_request",
            f"Content-Type '{media_type}' is not supported; use one of: {', '.join(supported)}",
            native="UNSUPPORTED_MEDIA_TYPE",
        )


class UnsupportedEncoding(Failure):
    """415: no operation takes a body with that ``Content-Encoding``."""

    def __init__(self, encoding: str) -> None:
        super().__init__(
            415,
            "invalid_request",
            f"Content-Encoding '{encoding[:64]}' is not supported; send the body as it is",
            native="UNSUPPORTED_MEDIA_TYPE",
            headers={"accept-encoding": "identity"},
        )


class NotImplementedYet(Failure):
    """501: the operation is declared and not served here."""

    def __init__(self, operation: str) -> None:
        super().__init__(501, "not_implemented", f"Operation '{operation}' is not implemented by this server")


class Capacity(Failure):
    """503: nothing can take the work now. Without ``retry_after`` waiting is no use."""

    def __init__(
        self,
        message: str,
        retry_after: float | None,
        *,
        code: str = "transport_failure",
        native: str | None = None,
        param: str | None = None,
        details: dict[str, Any] | None = None,
        terminal: bool | None = None,
    ) -> None:
        super().__init__(
            503,
            code,
            message,
            param=param,
            native=native,
            retry_after=retry_after,
            details=details,
            terminal=terminal,
        )


class TooMany(Failure):
    """429: one caller asks for more than its share, or no worker takes the work."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(429, "rate_limit_exceeded", message, retry_after=1.0 if retry_after is None else retry_after)

    def undeclared(self) -> Capacity:
        """The same for an operation that does not declare 429: a 503 that its clients retry."""
        return Capacity(self.message, self.retry_after, code="RESOURCE_EXHAUSTED")


class Timeout(Failure):
    """504: ``first_chunk_timeout``, ``inter_chunk_timeout`` or ``overall_timeout``."""

    def __init__(
        self, code: str = "overall_timeout", message: str | None = None, *, retry_after: float | None = None
    ) -> None:
        super().__init__(504, code, message or f"No result in time ({code})", retry_after=retry_after)


class LoadFailed(Failure):
    """502: the model cannot be loaded. ``permanent``: trying again cannot help."""

    def __init__(
        self, message: str, *, error_class: str | None = None, attempts: int = 1, permanent: bool = True
    ) -> None:
        super().__init__(
            502,
            "MODEL_LOAD_FAILED",
            message,
            details={"error_class": error_class, "attempts": attempts, "permanent": permanent},
        )


class AllItemsFailed(Failure):
    """500: every item of a native batch failed, for reasons that differ. ``items``: (index, message, code)."""

    def __init__(self, items: Sequence[tuple[int, str | None, str | None]]) -> None:
        super().__init__(
            500,
            "inference_error",
            f"All {len(items)} items failed",
            native="all_items_failed",
            details={"items": [{"item_index": i, "error": error, "code": code} for i, error, code in items]},
        )


class Internal(Failure):
    """500: a fault of ours. The message says nothing of its inside; the log does."""

    def __init__(self, message: str = "Internal server error") -> None:
        super().__init__(500, "inference_error", message, terminal=True)


def from_catalog(error: LookupError) -> Failure:
    """The failure that ``CatalogView.resolve`` raised (contract A.4, A.5, H.4)."""
    message = str(error.args[0]) if error.args else str(error)
    match error:
        case UnknownModel():
            return ModelNotFound(message, None if " " not in message else message)
        case UnknownProfile():
            return InvalidField("profile", message)
        case UnknownBundle():
            return Failure(404, "invalid_request", message, param="model", native="BUNDLE_NOT_FOUND")
        case BundleConflict():
            return Failure(
                409,
                "invalid_request",
                message,
                param="model",
                native="BUNDLE_ROUTING_CONFLICT",
                details={"compatible_bundles": list(error.compatible)},
            )
    raise TypeError(f"not an error of the catalog: {error!r}")


def from_pools(error: UnknownPool | PoolsUnavailable) -> Failure:
    """The failure of an operation on pools (contract I)."""
    if isinstance(error, UnknownPool):
        return PoolNotFound(str(error.args[0]))
    return Failure(500, "transport_failure", f"Pools cannot be changed now: {error}", retry_after=5, terminal=False)


def from_dispatch(error: DispatchError) -> Failure:
    """The failure of work that could not be handed over (contract A.4, A.5, A.7)."""
    if error.code == "provisioning":
        seconds = 60 if error.retry_after is None else error.retry_after
        return Capacity(error.message, seconds, code="provisioning", native="PROVISIONING")
    if error.code == "backpressure":
        return Capacity(error.message, 5 if error.retry_after is None else error.retry_after)
    return Capacity(error.message, error.retry_after)


_RETRYABLE: Final = frozenset({"RESOURCE_EXHAUSTED", "MODEL_LOADING", "LORA_LOADING"})
_TIMEOUTS: Final = frozenset({"first_chunk_timeout", "inter_chunk_timeout", "overall_timeout"})


def from_failed(event: Failed, *, native: bool = False) -> Failure:
    """The failure that a worker's last event stands for.

    Generation surfaces follow contract A.4, ``native`` ones (encode, score, extract and what wraps them) A.5: a timeout
    can be retried there, and work that was cancelled is a transport fault.
    """
    code, message = event.code, event.message
    match code:
        case "invalid_request" | "unsupported_field":
            return Failure(400, code, message, param=event.param)
        case "context_exceeded":
            return Failure(400, code, message, place=event.param)
        case "unknown_lora_adapter":
            return Failure(400, code, message, param=event.param or "lora_adapter")
        case "model_not_found":
            return Failure(404, code, message, param=event.param or "model")
        case "INVALID_INPUT":
            return InvalidInput(message, event.param)
        case "PAYLOAD_TOO_LARGE":
            return PayloadTooLarge(message, event.param)
        case "MODEL_LOAD_FAILED":
            return LoadFailed(
                message,
                error_class=event.details.get("error_class"),
                attempts=int(event.details.get("attempts", 1)),
                permanent=bool(event.details.get("permanent", True)),
            )
        case "cancelled":
            return Capacity(message, event.retry_after) if native else Failure(408, code, message)
        case "transport_failure":
            return Capacity(message, event.retry_after)
        case "malformed_worker_response" | "inference_error":
            # without the word of the worker, whether a retry helps is the client's guess
            return Failure(500, code, message, terminal=True if event.details.get("permanent") else None)
        case "rate_limit_exceeded":
            return TooMany(message, event.retry_after)
    if code in _RETRYABLE:
        return Capacity(message, 5 if event.retry_after is None else event.retry_after, code=code)
    if code in _TIMEOUTS:
        return Timeout(code, message, retry_after=5 if native else event.retry_after)
    return Failure(500, "inference_error", message)

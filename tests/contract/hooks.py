"""What schemathesis has to be told: MessagePack bodies, and requests that a small machine can afford."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import schemathesis

from generated.sie import operations
from tests.contract.obedience import OBEDIENT
from tests.live import ADMIN_KEY, EMBEDDING_MODEL

MSGPACK = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
LENGTHS = {
    "proxy_chat": "max_completion_tokens",
    "proxy_completions": "max_tokens",
    "proxy_responses": "max_output_tokens",
    "proxy_generate": "max_new_tokens",
    "create_chat_completion": "max_completion_tokens",
}
ADMIN = {operation.id for operation in operations.ALL if operation.admin}
SMALL = {"max_completion_tokens": 4, "max_tokens": 4, "max_output_tokens": 4, "max_new_tokens": 4, "n": 2, "best_of": 2}


@schemathesis.deserializer(*MSGPACK)
def read_msgpack(_context: Any, response: Any) -> Any:
    return msgspec.msgpack.decode(response.content)


@schemathesis.serializer(*MSGPACK)
def write_msgpack(_context: Any, value: Any) -> bytes:
    return msgspec.msgpack.encode(_representable(value))


def affordable(case: schemathesis.Case) -> None:
    """Make a request cheap without making it valid or invalid: counts that are in range become small ones, and a
    length that is not given is given. Work goes to machines that exist: for others 503 is the right answer."""
    operation, body = case.operation.definition.raw.get("operationId"), case.body
    if "X-SIE-MACHINE-PROFILE" in case.headers:
        case.headers["X-SIE-MACHINE-PROFILE"] = "cpu"
    if operation not in LENGTHS or not isinstance(body, dict):
        return
    for name, small in SMALL.items():
        value = body.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and small < value < 2**31:
            body[name] = small if isinstance(value, int) else float(small) + value % 1
    length = LENGTHS[operation]
    # null is absent too: what the context leaves can be minutes of work
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    if length not in body or (positive and body[length] is None):
        body[length] = SMALL[length]


def administered(case: schemathesis.Case) -> None:
    """Half of the requests to admin operations carry the token for them, and most of those ask for what there is."""
    row = case.operation.definition.raw.get("operationId", "")
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    drawn = zlib.crc32(repr((case.body, dict(case.path_parameters))).encode())
    if row not in ADMIN or not positive or drawn % 2:
        return
    case.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
    if row == "create_pool" and isinstance(case.body, dict) and drawn % 3:
        case.body["gpus"] = {"cpu": 1}
        for name in ("queue_pool", "bundle", "pinned_models"):
            case.body.pop(name, None)
    if row == "resolve_config" and isinstance(case.body, dict) and drawn % 3:
        case.body["model"] = EMBEDDING_MODEL


def answerable(case: schemathesis.Case) -> None:
    """Make two of three well-formed requests obey the rules that no schema states, and name a model that exists."""
    operation, body = case.operation.definition.raw.get("operationId"), case.body
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    if not positive or operation not in OBEDIENT or not isinstance(body, dict):
        return
    if zlib.crc32(repr(body).encode()) % 3 == 0:
        return
    model, obey = OBEDIENT[operation]
    obey(body)
    if "model" in body:
        body["model"] = model
    if "model" in case.path_parameters:
        case.path_parameters["model"] = model
    for name in ("X-SIE-Pool", "X-SIE-Engine"):
        case.headers.pop(name, None)


def _representable(value: Any) -> Any:
    """MessagePack has no integers beyond 64 bits; such a number travels as a float."""
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 1e300 else 1e300
    if isinstance(value, dict):
        return {key: _representable(item) for key, item in value.items()}
    return [_representable(item) for item in value] if isinstance(value, list) else value

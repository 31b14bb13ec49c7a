"""What schemathesis has to be told: MessagePack bodies, and requests that a small machine can afford."""

from __future__ import annotations

from typing import Any

import msgspec
import schemathesis

from tests.live import CHAT_MODEL, EMBEDDING_MODEL

MSGPACK = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
GENERATING = {"proxy_chat", "proxy_completions", "proxy_responses", "proxy_generate"}
EMBEDDING = {"proxy_openai_embeddings", "proxy_rerank", "proxy_rerank_v2", "proxy_encode", "proxy_score"}
LENGTHS = {
    "proxy_chat": "max_completion_tokens",
    "proxy_completions": "max_tokens",
    "proxy_responses": "max_output_tokens",
    "proxy_generate": "max_new_tokens",
}
SMALL = {"max_completion_tokens": 4, "max_tokens": 4, "max_output_tokens": 4, "max_new_tokens": 4, "n": 2, "best_of": 2}


@schemathesis.deserializer(*MSGPACK)
def read_msgpack(_context: Any, response: Any) -> Any:
    return msgspec.msgpack.decode(response.content)


@schemathesis.serializer(*MSGPACK)
def write_msgpack(_context: Any, value: Any) -> bytes:
    return msgspec.msgpack.encode(_representable(value))


def affordable(case: schemathesis.Case) -> None:
    """Make a request cheap without making it valid or invalid.

    Counts that are in range become small ones, and a length that is not given is given. Every second well-formed
    request that names some model names a real one of the right kind, so that engines are reached; a machine profile is
    the one there is.
    """
    operation = case.operation.definition.raw.get("operationId")
    model = CHAT_MODEL if operation in GENERATING else EMBEDDING_MODEL
    body = case.body
    if isinstance(body, dict) and operation in GENERATING | EMBEDDING:
        for name, small in SMALL.items():
            value = body.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and small < value < 2**31:
                body[name] = small if isinstance(value, int) else float(small) + value % 1
        if operation in LENGTHS:
            body.setdefault(LENGTHS[operation], SMALL[LENGTHS[operation]])
        name = body.get("model")
        if isinstance(name, str) and name and len(name) % 2 == 0:
            body["model"] = model
    if case.headers and case.headers.get("X-SIE-MACHINE-PROFILE"):
        case.headers["X-SIE-MACHINE-PROFILE"] = "cpu"  # for another the cluster would go and look: 503 is right
    path = case.path_parameters
    if isinstance(path, dict) and isinstance(path.get("model"), str) and path["model"] and len(path["model"]) % 2 == 0:
        path["model"] = model


def _representable(value: Any) -> Any:
    """MessagePack has no integers beyond 64 bits; such a number travels as a float."""
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 1e300 else 1e300
    if isinstance(value, dict):
        return {key: _representable(item) for key, item in value.items()}
    return [_representable(item) for item in value] if isinstance(value, list) else value

"""Tool calls of an answer: ids and names, in streams and in whole messages."""

from __future__ import annotations

import secrets

from engines.protocol.events import ToolCallDelta

from ..errors import Failure


def call_id(call: ToolCallDelta) -> str:
    """The worker's id of a call, or a new one: ``call_`` and 24 hex digits."""
    return call.id or f"call_{secrets.token_hex(12)}"


def call_name(call: ToolCallDelta) -> str:
    """The function that a call's first delta names.

    Raises:
        Failure: 500 ``malformed_worker_response``.
    """
    if call.name is None:
        raise Failure(500, "malformed_worker_response", f"Tool call {call.index} began without a name")
    return call.name

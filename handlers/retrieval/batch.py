"""What becomes of a batch in which some items failed (contract A.5, F.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engines.protocol.events import Failed, ItemError

from ..errors import AllItemsFailed, Failure, from_failed

# One such item fails the whole request, even beside good ones: the fault is of the request's size or of the transport.
_WHOLE_REQUEST: Final = ("PAYLOAD_TOO_LARGE", "transport_failure")
# When all items fail for one of these reasons, the request fails with it. Any other set of reasons is a 500.
_UNANIMOUS: Final = frozenset(
    {"INVALID_INPUT", "RESOURCE_EXHAUSTED", "MODEL_LOADING", "LORA_LOADING", "MODEL_LOAD_FAILED"}
)


def batch_failure(errors: Mapping[int, ItemError], count: int) -> Failure | None:
    """The failure of a request for ``count`` items of which those in ``errors`` failed, or ``None``: it succeeded.

    A mixed batch succeeds with the items that worked, unless an item was too large or the transport failed.
    """
    for code in _WHOLE_REQUEST:
        for error in errors.values():
            if error.code == code:
                return _of(error)
    if len(errors) < count:
        return None
    first, *others = (errors[index] for index in sorted(errors))
    if first.code in _UNANIMOUS and all(error.code == first.code for error in others):
        return _of(first)
    return AllItemsFailed([(index, error.message, error.code) for index, error in sorted(errors.items())])


def _of(error: ItemError) -> Failure:
    return from_failed(Failed(request_id="", code=error.code, message=error.message), native=True)

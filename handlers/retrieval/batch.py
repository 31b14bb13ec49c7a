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
_OF_THE_ITEM: Final = frozenset({"INVALID_INPUT", "PAYLOAD_TOO_LARGE"})


def batch_failure(errors: Mapping[int, ItemError], count: int, path: str | None = None) -> Failure | None:
    """The failure of a request for ``count`` items of which those in ``errors`` failed, or ``None``: it succeeded.

    ``path`` is the request's field of the items. A mixed batch succeeds with those that worked, unless an item was too
    large or the transport failed.
    """
    for code in _WHOLE_REQUEST:
        for index, error in sorted(errors.items()):
            if error.code == code:
                return _of(error, path, index)
    if len(errors) < count:
        return None
    index = min(errors)
    first = errors[index]
    if first.code in _UNANIMOUS and all(error.code == first.code for error in errors.values()):
        return _of(first, path, index)
    return AllItemsFailed([(index, error.message, error.code) for index, error in sorted(errors.items())])


def _of(error: ItemError, path: str | None, index: int) -> Failure:
    """The failure of one item, which it names where that is what the caller can mend."""
    param = f"{path}[{index}]" if path and error.code in _OF_THE_ITEM else None
    return from_failed(Failed(request_id="", code=error.code, message=error.message, param=param), native=True)

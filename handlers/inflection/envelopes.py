"""Faults of this contract: a list of validation errors for a refused body, one sentence for everything else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from generated.inflection import models

from ..errors import Failure
from ..http.envelopes import Shape
from ..resolution import ENGINE_HEADER, POOL_HEADER, PROFILE_HEADER

_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_HEADERS: Final = frozenset({ENGINE_HEADER, POOL_HEADER, PROFILE_HEADER})
_FIELDS: Final = frozenset(models.ChatCompletionRequest.__struct_fields__)


def validation_error(failure: Failure) -> dict[str, Any]:
    """``{"detail": [{"loc", "msg", "type"}]}``: ``loc`` leads from ``body`` to the member at fault, or to a header."""
    at = failure.place if failure.param is None else failure.param
    # a member that is not supported may have the name of a header
    header = at in _HEADERS and failure.code != "unsupported_field"
    return {
        "detail": [{"loc": ["header", at] if header else location(at), "msg": failure.message, "type": failure.code}]
    }


def location(param: str | None) -> list[str | int]:
    """``messages[0].role`` as ``body, messages, 0, role``; an unknown member is one step, whatever its name."""
    if param is None:
        return ["body"]
    if re.split(r"[.\[]", param, maxsplit=1)[0] not in _FIELDS:
        return ["body", param]
    return ["body", *(int(index) if index else name for index, name in _STEP.findall(param))]


def error(failure: Failure) -> dict[str, Any]:
    """``{"detail", "code"}``."""
    return {"detail": failure.message, "code": failure.code}


SHAPES: Final[Mapping[str, Shape]] = {
    "HTTPValidationError": Shape("detail", validation_error),
    "ErrorResponse": Shape("detail", error),
}

"""Faults of this contract: a list of validation errors for a refused body, one sentence for everything else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..errors import Failure
from ..http.envelopes import Shape

_STEP: Final = re.compile(r"[^.\[\]]+")


def validation_error(failure: Failure) -> dict[str, Any]:
    """``{"detail": [{"loc", "msg", "type"}]}``: ``loc`` leads from ``body`` to the member at fault."""
    return {"detail": [{"loc": location(failure.param), "msg": failure.message, "type": failure.code}]}


def location(param: str | None) -> list[str | int]:
    """``messages[0].role`` as ``body, messages, 0, role``; header names begin with ``X-``."""
    if param is not None and param[:2].upper() == "X-":
        return ["header", param]
    return ["body", *(int(step) if step.isdigit() else step for step in _STEP.findall(param or ""))]


def error(failure: Failure) -> dict[str, Any]:
    """``{"detail", "code"}``."""
    return {"detail": failure.message, "code": failure.code}


SHAPES: Final[Mapping[str, Shape]] = {
    "HTTPValidationError": Shape("detail", validation_error),
    "ErrorResponse": Shape("detail", error),
}

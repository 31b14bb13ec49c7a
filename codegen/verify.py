"""Last stage before writing: every request body of the generated models can be decoded."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import msgspec

from codegen.document import pointer
from codegen.faults import DocumentError, Fault
from codegen.ir import Service

_NAME = "codegen_verified_models"


def verify(models: str, service: Service) -> None:
    """Build a decoder for each body.

    Raises:
        DocumentError: msgspec refuses a type; the fault names the body.
    """
    module = ModuleType(_NAME)
    sys.modules[_NAME] = module  # where msgspec resolves the annotations
    try:
        exec(compile(models, "models.py", "exec"), module.__dict__)
        faults = []
        for operation in service.operations:
            if operation.body is None:
                continue
            try:
                msgspec.json.Decoder(_evaluated(operation.body.type.code, module))
            except (TypeError, NameError, AttributeError) as error:
                at = pointer("", "paths", operation.path, operation.method.lower(), "requestBody")
                faults.append(Fault(at, f"msgspec cannot decode this body: {error}"))
    finally:
        del sys.modules[_NAME]
    if faults:
        raise DocumentError(faults)


def _evaluated(code: str, module: ModuleType) -> Any:
    return eval(code, {"models": module, "Any": Any})

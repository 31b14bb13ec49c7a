"""The application implements the interfaces that the document generates."""

from __future__ import annotations

import inspect

import pytest

import app
from generated.sie import operations
from tests.http.fakes import services
from tests.pending import PENDING

HANDLERS = app._handlers(services())


def method(operation: operations.Operation) -> object:
    return getattr(getattr(HANDLERS, operation.tag), operation.id, None)


def test_no_operation_lacks_its_handler() -> None:
    assert {operation.id for operation in operations.ALL if method(operation) is None} == PENDING


@pytest.mark.parametrize("operation", [o for o in operations.ALL if o.id not in PENDING], ids=lambda o: o.id)
def test_a_handler_takes_what_its_route_passes(operation: operations.Operation) -> None:
    found = method(operation)
    assert inspect.iscoroutinefunction(found)
    arguments = ["context", *(p.name for p in operation.parameters if p.location == "path")]
    arguments += ["body"] if operation.body else []
    arguments += ["socket"] if operation.websocket else []
    inspect.signature(found).bind(*arguments)

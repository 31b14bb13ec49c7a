"""The tables leave nothing out: every declared status of every operation that does no inference has its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from generated.sie import operations
from generated.sie.operations import Operation
from tests.configs.test_operations import ROWS as CONFIGS
from tests.pools.test_operations import ROWS as POOLS
from tests.surfaces.test_operations import ROWS as OTHERS

COVERED = [operation for operation in operations.ALL if operation.tag != "inference"] + [operations.PROXY_MODERATIONS]
BEYOND = ("/metrics", "/playground", "/static/")
"""Paths that the document does not have."""
ALWAYS = {404, 405}
"""Statuses outside of operations: no such path, no such method."""


def operation_of(method: str, path: str) -> Operation | None:
    """The operation that a request is for: the one with the longest template that fits."""
    method = "GET" if method == "WEBSOCKET" else method
    fitting = [
        operation
        for operation in COVERED
        if operation.method == method and re.fullmatch(re.sub(r"\{\w+\}", ".+", operation.path), path)
    ]
    return max(fitting, key=lambda operation: len(operation.path), default=None)


def rows() -> Iterator[tuple[str, str, str, int]]:
    for table in (POOLS, CONFIGS, OTHERS):
        for row in table:
            yield row.rule, row.method, row.path, row.status


@pytest.mark.parametrize("operation", COVERED, ids=lambda operation: operation.id)
def test_every_declared_status_has_a_row(operation: Operation) -> None:
    seen = {status for _, method, path, status in rows() if operation_of(method, path) is operation}
    assert set(operation.responses) - seen == set()


def test_every_row_is_of_an_operation_and_of_a_status_that_it_declares() -> None:
    for rule, method, path, status in rows():
        operation = operation_of(method, path)
        if operation is None:
            assert path.startswith(BEYOND) or status in ALWAYS, (rule, method, path)
        else:
            assert status in operation.responses, (rule, method, path, status)


def test_no_rule_is_told_twice() -> None:
    named = [(rule, method, path) for rule, method, path, _ in rows()]
    assert len(named) == len(set(named))

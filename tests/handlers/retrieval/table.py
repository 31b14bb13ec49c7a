"""The form of a row: what is sent to an operation, what comes back, and what reaches the work item."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engines.protocol.cluster import DispatchError
from engines.protocol.events import FailureCode
from tests.handlers.scripted import changed

LONG: Final = 2**31

BASE: Final[Mapping[str, Any]] = {
    "/v1/embeddings": {"model": "org/embed", "input": ["one", "three"]},
    "/v1/rerank": {"model": "org/rerank", "query": "q", "documents": ["one", "three"]},
    "/v2/rerank": {"model": "org/rerank", "query": "q", "documents": ["one", "three"]},
    "/v1/encode/org/all": {"items": [{"text": "one"}, {"id": "b", "text": "three"}]},
    "/v1/score/org/all": {"query": {"text": "q"}, "items": [{"text": "one"}, {"id": "b", "text": "three"}]},
    "/v1/extract/org/all": {"items": [{"text": "one"}, {"id": "b", "text": "three"}]},
}


@dataclass(frozen=True)
class Row:
    """``change`` sets members of the least request by path (``items.0.text``), or deletes them.

    ``code`` and ``param`` are compared where the surface's envelope has them. Of a success, ``reaches`` are members of
    the work item by path, ``answers`` members of the JSON reply and ``goes`` members of the work's route; ``inert``:
    the work is the same as without the change. ``fails`` is what becomes of the work.
    """

    path: str
    name: str
    change: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    code: str | None = None
    param: str | None = None
    reaches: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    goes: Mapping[str, Any] = field(default_factory=dict)
    inert: bool = False
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    fails: FailureCode | DispatchError | None = None

    @property
    def id(self) -> str:
        return f"{self.path}: {self.name}"

    @property
    def has_effect(self) -> bool:
        """Whether the row says what becomes of its change."""
        return bool(self.reaches or self.answers or self.goes or self.inert)

    def request(self) -> Any:
        """The body to send."""
        if self.body is not None:
            return self.body
        return changed(BASE[self.path], self.change)


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def routing(path: str, bad: str | None, no_pool: str | None, no_machine: str | None) -> list[Row]:
    """The headers that say where work goes; the codes are those of the surface."""
    pool, machine, engine = "X-SIE-Pool", "X-SIE-MACHINE-PROFILE", "X-SIE-Engine"
    return [
        Row(path, "pool", headers={pool: "FAST"}, reaches={"pool": "fast"}, goes={"pool": "fast"}),
        Row(path, "pool malformed", {}, 400, bad, pool, headers={pool: "a b"}),
        Row(path, "pool too long", {}, 400, bad, pool, headers={pool: "a" * 129}),
        Row(path, "pool unknown", {}, 404, no_pool, headers={pool: "none"}),
        Row(path, "machine profile", headers={machine: "l4"}, goes={"pool": "default", "machine_profile": "l4"}),
        Row(
            path,
            "pool and machine profile",
            headers={machine: "fast/l4"},
            goes={"pool": "fast", "machine_profile": "l4"},
        ),
        Row(path, "half a machine profile", {}, 400, bad, machine, headers={machine: "fast/"}),
        Row(path, "machine profile unknown", {}, 503, no_machine, headers={machine: "h100"}),
        Row(path, "engine", headers={engine: "E"}, inert=True),
        Row(path, "engine unknown", {}, 400, bad, headers={engine: "none"}),
        Row(path, "version of the SDK", headers={"X-SIE-SDK-Version": "9.9.9"}, inert=True),
    ]


def failures(path: str, codes: Mapping[str, tuple[int, str]]) -> list[Row]:
    """What a worker, or the way to it, says; ``codes`` are status and code on the surface by that."""
    rows = []
    for said, (status, code) in codes.items():
        lost: Any = {
            "no worker": DispatchError("provisioning", "no worker"),
            "too much waits": DispatchError("backpressure", "too much"),
            "no queue": DispatchError("queue_unavailable", "no queue"),
        }.get(said)
        rows.append(Row(path, f"fails: {said}", {}, status, code, fails=lost or said))
    return rows

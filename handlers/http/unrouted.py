"""Requests that no operation takes: unknown paths, wrong methods, faults outside of operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..errors import Failure
from .envelopes import Family, Shape, detail
from .plan import Envelope, Plan

_PLAIN: Final = Shape("detail", detail)


class Paths:
    """Finds the envelope for a path by its prefix, and what a client may have meant by it."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        static = [(plan.operation.path.partition("{")[0].rstrip("/"), plan) for plan in plans]
        self._prefixes = sorted(((p, plan) for p, plan in static if p), key=lambda pair: -len(pair[0]))

    def find(self, path: str) -> Plan | None:
        """The operation with the longest path that ``path`` begins with, by whole segments."""
        for prefix, plan in self._prefixes:
            if path == prefix or path.startswith(prefix + "/"):
                return plan
        return None

    def envelope(self, path: str, status: int) -> Envelope:
        """How an error outside of operations leaves at ``path``."""
        plan = self.find(path) or self.find(self.meant(path) or "")
        shape, family = (_PLAIN, _PLAIN.family) if plan is None else (plan.common()[0], plan.family)
        return Envelope(status, shape, family)

    def meant(self, path: str) -> str | None:
        """The path of an operation that ``path`` becomes with one ``/v1`` less or more in front."""
        if path.startswith("/v1/") and self.find(path[3:]) is not None:
            return path[3:]
        if not path.startswith("/v1/") and self.find("/v1" + path) is not None:
            return "/v1" + path
        return None

    def not_found(self, path: str) -> Failure:
        """404, with a hint where the client's ``base_url`` is likely wrong."""
        message = f"No operation at {path}"
        meant = self.meant(path)
        if meant is not None:
            ends = "end in /v1" if meant.startswith("/v1/") and not path.startswith("/v1/") else "not end in /v1"
            message += f"; did you mean {meant}? The base_url of this client should {ends}"
        return Failure(404, "not_found", message, type="invalid_request_error")


def not_allowed(method: str, path: str, allow: str) -> Failure:
    """405, with the methods that the path has in ``Allow``."""
    return Failure(
        405, "method_not_allowed", f"{path} does not take {method}; it takes {allow}", headers={"allow": allow}
    )


__all__ = ["Family", "Paths", "not_allowed"]

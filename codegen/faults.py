"""Faults of a document, gathered to the end and each with its place."""

from __future__ import annotations

import msgspec


class Fault(msgspec.Struct, frozen=True, order=True):
    """Something in a document that cannot be turned into code."""

    pointer: str  # RFC 6901, into the document with its overlays
    message: str

    def __str__(self) -> str:
        return f"{self.pointer or '/'}: {self.message}"


class DocumentError(ValueError):
    """A document with faults; its text names every one of them."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = sorted(set(faults))
        super().__init__("\n".join(map(str, self.faults)))

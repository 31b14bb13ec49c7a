"""What cannot be expressed, named with its place."""

from __future__ import annotations

from codegen.document import Document


def check(document: Document) -> None:
    """Raise DocumentError with every fault of the document."""

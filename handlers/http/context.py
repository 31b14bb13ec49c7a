"""What a handler knows of its request and may say of its answer. Implements the generated ``Context``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from .ids import request_id


class RequestContext:
    """One request. ``response_headers``, ``media_type`` and ``status`` are the handler's to set.

    ``filenames`` has the name that the client gave each file of a form, ``subject`` what an audit calls the request's.
    """

    __slots__ = (
        "_headers",
        "_query",
        "filenames",
        "media_type",
        "operation",
        "raw",
        "request_id",
        "response_headers",
        "status",
        "subject",
    )

    def __init__(self, operation: Any, raw: dict[bytes, bytes], query: bytes = b"") -> None:
        self.operation = operation
        self._query = query
        self.raw = raw
        self.request_id = request_id()
        self.response_headers: dict[str, str] = {}
        self.media_type: str | None = None
        self.status: int | None = None
        self.filenames: dict[str, str] = {}
        self.subject = ""
        self._headers: Mapping[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """Request headers by lower-case name; a repeated one has its last value."""
        if self._headers is None:
            self._headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in self.raw.items()}
        return self._headers

    def header(self, name: str) -> str | None:
        """Value of one request header, whatever its case, or ``None``."""
        value = self.raw.get(name.lower().encode("latin-1"))
        return None if value is None else value.decode("latin-1")

    def query(self, name: str) -> str | None:
        """Last value of one query parameter, or ``None``."""
        values = parse_qs(self._query.decode("latin-1"), keep_blank_values=True).get(name)
        return values[-1] if values else None

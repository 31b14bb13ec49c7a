"""A hub of models on loopback: the endpoints that huggingface_hub asks for files, with faults on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SHA = "1" * 40


@dataclass
class Hub:
    """Repositories by name, each with its files.

    ``cut``: after how many bytes the first answer with that file breaks off. ``refused``: status and error code by
    repository. ``asked`` has every request: method, path and range.
    """

    repositories: dict[str, dict[str, bytes]]
    cut: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    url: str = ""

    def files(self, name: str) -> list[str]:
        """How often a file was asked for, as the ranges of the requests."""
        return [asked or "all" for method, path, asked in self.asked if method == "GET" and path.endswith(f"/{name}")]

    @contextmanager
    def serving(self) -> Iterator[Hub]:
        hub = self

        class Handler(_Handler):
            def __init__(self, *arguments: Any) -> None:
                self.hub = hub
                super().__init__(*arguments)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.asked.append((self.command, path, self.headers.get("range")))
        parts = path.removeprefix("/api/models").strip("/").split("/")
        repository = "/".join(parts[:2])
        if repository in self.hub.refused:
            self._refuse(*self.hub.refused[repository])
        elif repository not in self.hub.repositories:
            self._refuse(404, "RepoNotFound")
        elif parts[3] not in (SHA, "main"):
            self._refuse(404, "RevisionNotFound")
        elif parts[2] == "revision":
            self._json({"id": repository, "sha": SHA, "siblings": []})
        elif parts[2] == "tree":
            files = self.hub.repositories[repository].items()
            self._json([{"type": "file", "path": n, "size": len(c), "oid": sha256(c).hexdigest()} for n, c in files])
        else:
            self._file(parts[4], self.hub.repositories[repository][parts[4]])

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("x-error-code", code)
        self.send_header("content-length", "0")
        self.end_headers()

    def _file(self, name: str, content: bytes) -> None:
        if name in self.hub.gone and self.command == "GET":
            self.close_connection = True
            return
        begin = int((self.headers.get("range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        part = content[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("etag", f'"{sha256(content).hexdigest()}"')
        self.send_header("x-repo-commit", SHA)
        self.send_header("content-length", str(len(part)))
        if begin:
            self.send_header("content-range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "GET":
            cut = self.hub.cut.pop(name, None)
            self.wfile.write(part[:cut])
            self.close_connection = self.close_connection or cut is not None

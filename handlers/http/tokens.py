"""The tokens that open this gateway, as digests; those of files are read anew when a file changes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final

from ..settings import SettingError, Settings

log = logging.getLogger("sie.auth")

LOOK_EVERY: Final = 1.0
"""Seconds between two looks at a file: an in-memory call to the operating system, made by the next request."""

Digests = tuple[bytes, ...]


def digest(token: bytes) -> bytes:
    return sha256(token).digest()


class TokenFile:
    """Tokens of a file: one a line, or comma-separated; ``#`` begins a comment.

    A file that has gone or cannot be read leaves the tokens as they are, which the log tells; an empty one has none.
    """

    def __init__(self, path: str, clock: Callable[[], float] = monotonic) -> None:
        """Read the file.

        Raises:
            SettingError: it cannot be read.
        """
        self._path = Path(path)
        self._clock = clock
        self._looked = clock()
        self._bad = False
        try:
            self._seen = self._state()
            self._digests = self._read()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"the token file {path} cannot be read: {_reason(error)}") from None

    def digests(self) -> Digests:
        now = self._clock()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._look()
        return self._digests

    def _look(self) -> None:
        try:
            state = self._state()
            if state == self._seen:
                return
            self._digests, self._seen, self._bad = self._read(), state, False
            log.info("the token file %s has changed: %d tokens", self._path, len(self._digests))
        except (OSError, UnicodeDecodeError) as error:
            if not self._bad:
                log.error("the token file %s cannot be read, its last tokens stay: %s", self._path, _reason(error))
            self._bad = True

    def _state(self) -> tuple[int, int, int]:
        found = os.stat(self._path)
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> Digests:
        lines = (line.partition("#")[0] for line in self._path.read_text("utf-8").splitlines())
        tokens = (token.strip() for line in lines for token in line.split(","))
        return tuple(digest(token.encode()) for token in tokens if token)


class Tokens:
    """The inference tokens and the admin tokens of this moment."""

    def __init__(self, settings: Settings) -> None:
        """Read the settings and the files that they name.

        Raises:
            SettingError: a file cannot be read.
        """
        self._fixed = tuple(digest(token.encode()) for token in settings.auth_tokens)
        self._fixed_admin = () if settings.admin_token is None else (digest(settings.admin_token.encode()),)
        self._file = TokenFile(settings.auth_tokens_file) if settings.auth_tokens_file else None
        self._admin_file = TokenFile(settings.admin_token_file) if settings.admin_token_file else None

    def inference(self) -> Digests:
        return self._fixed if self._file is None else self._fixed + self._file.digests()

    def admin(self) -> Digests:
        return self._fixed_admin if self._admin_file is None else self._fixed_admin + self._admin_file.digests()


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is no UTF-8 text"

"""SDKs tell their version; one that is far from ours is worth a warning, once, and never a refusal (contract M)."""

from __future__ import annotations

import logging
import re
from typing import Final

log = logging.getLogger("sie.sdk")

KEPT: Final = 256
"""Most versions that are remembered: a header may hold anything."""
_VERSION: Final = re.compile(r"(\d{1,6})\.(\d{1,6})(?:[.\-+a-zA-Z0-9]{0,40})\Z")


class Skew:
    """Warns of SDK versions that differ in their major number, or by more than one in their minor number."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._ours = _numbers(version)
        self._seen: set[bytes] = set()

    def __call__(self, told: bytes) -> None:
        """Look at the header of one request."""
        if told in self._seen or len(self._seen) >= KEPT:
            return
        self._seen.add(told)
        theirs = _numbers(told.decode("latin-1").strip())
        if theirs is None or self._ours is None:
            return
        if theirs[0] != self._ours[0] or abs(theirs[1] - self._ours[1]) > 1:
            log.warning("SDK %d.%d speaks to gateway %s: some calls may not fit", *theirs, self._version)


def _numbers(version: str) -> tuple[int, int] | None:
    found = _VERSION.match(version)
    return None if found is None else (int(found[1]), int(found[2]))

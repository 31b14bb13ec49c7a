"""The processes of an engine: counted, and ended with it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import psutil  # type: ignore[import-untyped]  # ships no types

MEMORY_EVERY = 5.0
END_TIMEOUT = 3.0


class Family:
    """The child processes that came up while an engine loaded, and their children."""

    def __init__(self) -> None:
        self._members: list[psutil.Process] = []
        self._memory = 0
        self._counted = 0.0

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Children that appear in this block belong to the engine, also when the block fails."""
        before = {child.pid for child in psutil.Process().children()}
        try:
            yield
        finally:
            self._members = [child for child in psutil.Process().children() if child.pid not in before]

    def memory(self) -> int:
        """Bytes that the processes alone hold (counted every few seconds)."""
        if time.monotonic() - self._counted > MEMORY_EVERY:
            self._counted = time.monotonic()
            self._memory = sum(_private_bytes(member) for member in self._everyone())
        return self._memory

    def end(self) -> None:
        """Wait a little for those that are ending, kill the others."""
        everyone = self._everyone()
        _, alive = psutil.wait_procs(everyone, timeout=0.5)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        _, alive = psutil.wait_procs(alive, timeout=END_TIMEOUT)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=END_TIMEOUT)
        self._members = []

    def _everyone(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for member in self._members:
            with contextlib.suppress(psutil.Error):
                found += [member, *member.children(recursive=True)]
        return found


def _private_bytes(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        memory = process.memory_info()
        return int(memory.rss - memory.shared)
    return 0

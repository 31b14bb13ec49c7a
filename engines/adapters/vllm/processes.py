"""The processes of an engine: counted, and ended with it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import psutil

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
            born = [child for child in psutil.Process().children() if child.pid not in before]
            self._members = [child for child in born if not _is_shared(child)]

    def memory(self) -> int:
        """Bytes that the processes alone hold (counted every few seconds)."""
        if time.monotonic() - self._counted > MEMORY_EVERY:
            self._counted = time.monotonic()
            self._memory = sum(_private_bytes(member) for member in self._everyone())
        return self._memory

    def end(self) -> None:
        """Wait a little for those that are ending, kill the others (they hold nothing that must be saved)."""
        _, alive = psutil.wait_procs(self._everyone(), timeout=0.3)
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


def _is_shared(process: psutil.Process) -> bool:
    """Python's resource tracker and the guard serve all engines of this process; documents may be another engine's."""
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        return True
    return "resource_tracker" in command or "adapters.documents" in command or command.startswith("/bin/sh")


def _private_bytes(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        memory = process.memory_info()
        return int(memory.rss - memory.shared)
    return 0

"""What this machine has and this process uses, without importing an engine's library."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import psutil


@functools.cache
def gpu_count() -> int:
    """NVIDIA devices that this process can see."""
    return sum(bool(re.fullmatch(r"nvidia\d+", path.name)) for path in Path("/dev").glob("nvidia*"))


def memory() -> tuple[int, int]:
    """Resident bytes of this process and its children, and bytes of main memory."""
    used = 0
    process = psutil.Process()
    for member in [process, *process.children(recursive=True)]:
        try:
            used += member.memory_info().rss
        except psutil.Error:
            continue  # it has just ended
    return used, psutil.virtual_memory().total

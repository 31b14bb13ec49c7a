"""The cache directory (``SIE_CACHE_DIR``, by default ``~/.cache/oasgate``) and folders built there once."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def folder() -> Path:
    """Where prepared files are kept between runs."""
    return Path(os.environ.get("SIE_CACHE_DIR") or Path.home() / ".cache" / "oasgate").absolute()


def build_once(target: Path, build: Callable[[Path], None]) -> Path:
    """Return ``target``, calling ``build`` on a new folder beside it if it does not exist yet.

    The folder gets its name only when it is whole, so a reader never sees half of one; of several processes one
    builds and the others wait.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f".{target.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():
            return target
        _sweep(target)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.part-", dir=target.parent))
        try:
            build(unfinished)
            unfinished.chmod(0o755)
            unfinished.rename(target)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return target


def _sweep(target: Path) -> None:
    """Remove what a killed builder left; nobody builds now, the lock is ours."""
    for left in target.parent.glob(f".{target.name}.part-*"):
        shutil.rmtree(left, ignore_errors=True)

"""Hot reload: the catalog's files are looked at once a second, and a catalog that reads well is taken over whole."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from .catalog import Catalog
from .reading import CatalogError

log = logging.getLogger("sie.catalog")

VARIABLES = ("SIE_MODELS_DIR", "SIE_BUNDLES_DIR")
LOOK_EVERY = 1.0

State = tuple[tuple[str, int, int, int], ...]


class Reloader:
    """Keeps a catalog like its files. ``changed`` is called after each change that was applied.

    Files are compared by time, size and inode, which works where notifications do not (network file systems, the
    symbolic links of a mounted ConfigMap). A change that makes any file unreadable is told in the log, with file, line
    and field, and the catalog stays as it is until the next change.
    """

    def __init__(
        self, catalog: Catalog, environ: Mapping[str, str] = os.environ, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._catalog = catalog
        self._environ = environ
        self._changed = changed
        self._seen = self.state()

    @property
    def needed(self) -> bool:
        """Whether there are files that may change."""
        return any(self._environ.get(name, "").strip() for name in VARIABLES)

    async def run(self, every: float = LOOK_EVERY) -> None:
        """Look for ever."""
        while self.needed:
            await asyncio.sleep(every)
            try:
                await self.look()
            except Exception:
                # nobody awaits this task: without the next look no change would be seen any more
                log.exception("catalog: the files cannot be looked at, epoch %d stays", self._catalog.epoch)

    async def look(self) -> bool:
        """Take a change over; return whether there was one."""
        # a mounted directory may hang
        state = await asyncio.to_thread(self.state)
        if state == self._seen:
            return False
        self._seen = state
        try:
            fresh = await asyncio.to_thread(Catalog.from_env, self._environ)
        except CatalogError as error:
            self._keep([str(problem) for problem in error.problems])
            return False
        known = _malformed(self._catalog)
        bad = sorted(_malformed(fresh) - known)
        if bad:
            self._keep(bad)
            return False
        self._catalog.take(fresh)
        log.info("catalog: changed, now at epoch %d", self._catalog.epoch)
        self._changed()
        return True

    def state(self) -> State:
        """What the files look like from outside."""
        rows = []
        for name in VARIABLES:
            for directory in self._environ.get(name, "").split(os.pathsep):
                if directory.strip():
                    rows += _files(Path(directory))
        return tuple(rows)

    def _keep(self, problems: list[str]) -> None:
        for problem in problems:
            log.error("%s", problem)
        log.error("catalog: the change is not taken over, epoch %d stays", self._catalog.epoch)


def _files(directory: Path) -> list[tuple[str, int, int, int]]:
    rows = []
    try:
        for path in sorted(directory.iterdir()):
            if path.suffix in {".yaml", ".yml"}:
                found = path.stat()
                rows.append((str(path), found.st_mtime_ns, found.st_size, found.st_ino))
    except OSError as error:
        rows.append((f"{directory}: {error.strerror}", 0, 0, 0))
    return rows


def _malformed(catalog: Catalog) -> set[str]:
    """Files that were bad already when the catalog was taken over do not stand in the way of others."""
    return {one.reason for one in catalog.refused if one.malformed}

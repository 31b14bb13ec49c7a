"""A file that shows how this worker is to whoever runs on the same machine, such as the probes of Kubernetes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

log = logging.getLogger("sie.worker")

FILE = "SIE_WORKER_STATE_FILE"
EVERY = 1.0

State = Literal["starting", "ready", "draining"]


class Signs:
    """Writes the state into the file every second: one that grows old tells of an event loop that hangs."""

    def __init__(self, state: Callable[[], State], environ: Mapping[str, str] = os.environ) -> None:
        """``SIE_WORKER_STATE_FILE`` names the file; unset: there is none."""
        self._state = state
        self._file = Path(name) if (name := environ.get(FILE, "").strip()) else None

    async def run(self) -> None:
        """Write until cancelled; then the file goes."""
        file = self._file
        if file is None:
            return
        new = file.with_name(f"{file.name}.new")
        try:
            while True:
                try:
                    new.write_text(self._state())
                    new.replace(file)  # nobody reads half of it
                except OSError as error:
                    log.warning("%s: %s", FILE, error)
                await asyncio.sleep(EVERY)
        finally:
            with contextlib.suppress(OSError):
                file.unlink()

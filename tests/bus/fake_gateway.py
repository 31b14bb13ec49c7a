"""A gateway process with a scripted worker: answers one request, says so, and waits to be killed."""

from __future__ import annotations

import asyncio
import sys

from engines.bus.settings import BusSettings
from engines.catalog import Catalog
from engines.cluster import Cluster
from engines.protocol.events import Completed

from .conftest import ask


async def main() -> None:
    cluster = Cluster(
        Catalog.from_env({}),
        BusSettings(),
        environ={"SIE_PRELOAD_MODELS": ""},
        worker_command=[sys.executable, "-m", "tests.bus.fake_worker"],
    )
    await cluster.start()
    if isinstance((await ask(cluster, "echo:1"))[-1], Completed):
        print("completed", flush=True)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main())

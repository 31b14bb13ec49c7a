"""The life of the worker process: signals, its parent, its children, its end."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Sequence

import psutil
import uvloop

from engines.adapters.base import Engine
from engines.bus.launch import die_with_parent
from engines.bus.settings import BusSettings
from engines.bus.tasks import ended
from engines.catalog import Catalog, CatalogError
from engines.protocol.catalog import ModelEntry, Profile

from . import log as logs
from . import machine
from .models import Factory
from .options import WorkerOptions
from .signs import Signs
from .worker import Worker

log = logging.getLogger("sie.worker")

FORCED_LIMIT = 5.0
"""Seconds after the second signal in which the process ends whatever it is doing."""
PARENT = "SIE_WORKER_PARENT"
"""Process id of the supervisor; a worker that has one ends with it."""


def parser() -> argparse.ArgumentParser:
    """The options of ``python -m engines.worker``."""
    made = argparse.ArgumentParser("python -m engines.worker", description="Run one inference worker.")
    made.add_argument("--name", default="", help="unique among the workers of the cluster; default: host and a suffix")
    made.add_argument("--pool", default="default")
    made.add_argument("--machine-profile", default="", help="default: gpu where there is one, else cpu")
    made.add_argument("--bundle", default="default")
    made.add_argument("--models", default="", help="comma list of models to load at the start")
    made.add_argument("--max-inflight", type=int, default=512, help="requests taken from the queue at a time")
    made.add_argument("--drain", type=float, default=20.0, help="seconds that running requests get after SIGTERM")
    made.add_argument(
        "--memory-budget", type=int, default=0, help="bytes of loaded models before eviction; 0: no limit"
    )
    made.add_argument(
        "--kv-budget", type=int, default=0, help="tokens of generations taken at a time; 0: by the engines' caches"
    )
    return made


def options(arguments: Sequence[str] | None = None) -> WorkerOptions:
    """Read the command line."""
    given = parser().parse_args(arguments)
    return WorkerOptions(
        name=given.name or f"{socket.gethostname().split('.')[0]}-{secrets.token_hex(3)}",
        pool=given.pool,
        machine_profile=given.machine_profile or default_machine_profile(),
        bundle=given.bundle,
        models=tuple(name.strip() for name in given.models.split(",") if name.strip()),
        max_inflight=given.max_inflight,
        drain=given.drain,
        memory_budget=given.memory_budget or None,
        kv_budget=given.kv_budget,
    )


def default_machine_profile() -> str:
    return "gpu" if machine.gpu_count() else "cpu"


def load_engine(entry: ModelEntry, profile: Profile) -> Engine:
    """Create the engine of a profile; importing its library here keeps the worker's start short."""
    from engines.adapters import create

    return create(entry, profile)


def serve(settings: WorkerOptions, factory: Factory = load_engine) -> int:
    """Run a worker until a signal ends it; return the exit status."""
    logs.configure()
    parent = int(os.environ.get(PARENT, "0"))
    if parent:
        die_with_parent(signal.SIGTERM, parent)
    try:
        bus = BusSettings.from_env()
        catalog = Catalog.from_env()
    except (CatalogError, ValueError) as error:
        log.error("%s", error)
        return 2
    if not bus.url:
        log.error("SIE_NATS_URL is not set: a worker has to know the bus")
        return 2
    status = 1
    try:
        uvloop.run(_serve(Worker(settings, bus, catalog, factory), parent))
        status = 0
    finally:
        kill_children()
    return status


async def _serve(worker: Worker, parent: int) -> None:
    """Run the worker to its end, which is that of the process too."""
    loop = asyncio.get_running_loop()
    signals = 0

    def stop() -> None:
        nonlocal signals
        signals += 1
        worker.stop()
        if signals == 2:
            loop.call_later(FORCED_LIMIT, _exit_now)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    watch = asyncio.create_task(_follow(parent, worker)) if parent else None
    signs = asyncio.create_task(Signs(worker.state).run(), name="signs")
    try:
        await worker.run()
    finally:
        await ended(signs)
        if watch is not None:
            watch.cancel()
    # a library that is loading a model on a thread cannot be told to stop, and a normal exit would wait for it
    kill_children()
    logging.shutdown()
    os._exit(0)


async def _follow(parent: int, worker: Worker) -> None:
    """Without its supervisor a worker has nobody to answer: drain without patience."""
    while os.getppid() == parent:  # noqa: ASYNC110  # nothing signals a new parent
        await asyncio.sleep(0.5)
    log.warning("the supervisor is gone, stopping")
    worker.stop()
    worker.stop()


def _exit_now() -> None:
    log.error("the worker does not end, killing it")
    kill_children()
    os._exit(1)


def kill_children() -> None:
    """Leave no process behind: what the engines did not end is killed."""
    with contextlib.suppress(psutil.Error):
        children = psutil.Process().children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        psutil.wait_procs(children, timeout=3)

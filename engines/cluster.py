"""The cluster as the gateway composes it: catalog, dispatcher, view, and on one machine the bus and a worker.

Usage in the composition root::

    cluster = Cluster.from_env()         # reads files and environment; raises CatalogError or ValueError
    services = Services(catalog=cluster.catalog, dispatcher=cluster.dispatcher, cluster=cluster.dispatcher, ...)
    await cluster.start()                # within a fraction of a second; the worker comes up behind it
    ...
    await cluster.stop()                 # bounded; leaves no process behind

Without ``SIE_NATS_URL`` a private nats-server and one worker are started and supervised. With it, this gateway joins
that bus, and workers are started elsewhere. The gateway imports neither torch, transformers nor vllm through here.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence

from engines.bus.server import EmbeddedServer
from engines.bus.settings import BusSettings
from engines.bus.subjects import Lane
from engines.bus.tasks import ended
from engines.catalog import Catalog, Reloader
from engines.dispatcher.dispatcher import NatsDispatcher
from engines.dispatcher.lanes import BusLanes
from engines.pools import NatsPools
from engines.worker.machine import gpu_count
from engines.worker.supervisor import COMMAND as WORKER_COMMAND
from engines.worker.supervisor import Supervisor

log = logging.getLogger("sie.cluster")

CONNECT_PATIENCE = 2.0
WORKER_DRAIN = 3.0
LOAD_PATIENCE = 300.0
"""Seconds that a request may wait for its model to load, beside its own limits (``SIE_LOAD_PATIENCE_S``)."""


class Cluster:
    """What ``app.py`` starts and stops. ``dispatcher`` is both the ``Dispatcher`` and the ``ClusterView``."""

    def __init__(
        self,
        catalog: Catalog,
        bus: BusSettings,
        *,
        environ: Mapping[str, str] = os.environ,
        worker_command: Sequence[str] | None = None,
    ) -> None:
        self.catalog = catalog
        self.dispatcher = NatsDispatcher(load_patience=_seconds(environ, "SIE_LOAD_PATIENCE_S", LOAD_PATIENCE))
        self.pools = NatsPools()
        self.lanes = BusLanes(self.dispatcher)
        self._bus = bus
        self._environ = environ
        self._worker_command = worker_command
        self.server: EmbeddedServer | None = None
        self.worker: Supervisor | None = None
        self._joining: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None
        self._hurried = False

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Cluster:
        """Read catalog and settings.

        Raises:
            CatalogError: the catalog cannot be used.
            ValueError: a variable is malformed.
        """
        return cls(Catalog.from_env(environ), BusSettings.from_env(environ), environ=environ)

    async def start(self) -> None:
        """Start the bus if it is ours, connect, start the worker. A foreign bus that is down is joined when it is up.

        Raises:
            ServerError: the private nats-server cannot be started.
        """
        self._reloading = asyncio.create_task(Reloader(self.catalog, self._environ).run(), name="catalog-reload")
        if self._bus.url:
            self._joining = asyncio.create_task(self._join(self._bus), name="join-bus")
            await asyncio.wait({self._joining}, timeout=CONNECT_PATIENCE)
            if self._joining.done():
                self._joining.result()
            else:
                log.warning("the bus does not answer yet; requests are refused until it does")
            return
        self.server = EmbeddedServer()
        lane = self._local_lane()
        self.dispatcher.expect(lane)
        try:
            bus = await self.server.start(self._bus)
            await self._join(bus)
            await self._start_worker(bus, lane)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything that ``start`` started; bounded in time."""
        await ended(self._joining, self._reloading)
        if self.worker is not None:
            if self._hurried:
                self.worker.hurry()
            # its last events still reach the dispatcher
            await self.worker.stop(WORKER_DRAIN + 5.0)
        await self.pools.stop()
        await self.dispatcher.stop()
        if self.server is not None:
            await self.server.stop()

    def hurry(self) -> None:
        """Fail all open work, and let ``stop``, running or to come, wait for nothing any more."""
        self._hurried = True
        self.dispatcher.give_up()
        if self.worker is not None:
            self.worker.hurry()

    async def _join(self, bus: BusSettings) -> None:
        await self.dispatcher.start(bus)
        await self.pools.start(bus)

    def _local_lane(self) -> Lane:
        profile = self._environ.get("SIE_MACHINE_PROFILE", "").strip() or ("gpu" if gpu_count() else "cpu")
        return Lane("default", profile, "default")

    async def _start_worker(self, bus: BusSettings, lane: Lane) -> None:
        arguments = ["--pool", lane.pool, "--machine-profile", lane.machine_profile, "--bundle", lane.bundle]
        arguments += ["--drain", str(WORKER_DRAIN), "--models", ",".join(preload(self._environ, self.catalog))]
        command = self._worker_command or WORKER_COMMAND
        self.worker = Supervisor(command, arguments, bus.to_env(), self.dispatcher.goodbye)
        await self.worker.start()


def preload(environ: Mapping[str, str], catalog: Catalog) -> list[str]:
    """Models that the local worker loads at its start: ``SIE_PRELOAD_MODELS``, by default the embedded ones.

    Set and empty, nothing is loaded before it is asked for.
    """
    given = environ.get("SIE_PRELOAD_MODELS")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    embedded = [entry for entry in catalog.models() if entry.profiles["default"].source.startswith("package:")]
    # encoders first: they are ready in seconds
    return [entry.name for entry in sorted(embedded, key=lambda entry: "generate" in entry.tasks)]


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    raw = environ.get(name, "").strip()
    try:
        value = float(raw) if raw else default
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1e6:
        raise ValueError(f"{name}: expected a number of seconds, got {raw!r}")
    return value

"""The load of the lanes: the gateway's own requests, and the queues by the bus's own count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import nats.errors
from nats.aio.client import Client

from engines.bus.subjects import Lane, token
from engines.protocol.cluster import WorkerStatus
from engines.protocol.lanes import LaneLoad

FRESH: Final = 1.0
"""Seconds for which a count of the queues is good enough, however many ask."""
PATIENCE: Final = 1.0
_API: Final = "$JS.API"
_WORK: Final = "sie.work."
_STREAMS: Final = "WORK_POOL_"

Counts = dict[Lane, tuple[int, int]]
"""By lane: messages that wait, and those that workers have and have not settled."""


class Source(Protocol):
    """The dispatcher, as far as it is needed here."""

    @property
    def client(self) -> Client | None: ...

    def workers(self) -> Sequence[WorkerStatus]: ...

    def open_lanes(self) -> Mapping[Lane, int]: ...


class _Config(msgspec.Struct):
    filter_subject: str = ""


class _Consumer(msgspec.Struct):
    config: _Config
    num_pending: int = 0
    num_ack_pending: int = 0


class _Page(msgspec.Struct):
    """One answer of the bus: names of streams, or consumers of one, from an offset on; or an error."""

    total: int = 0
    streams: list[str] | None = None
    consumers: list[_Consumer] | None = None
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Page).decode


class BusLanes:
    """``engines.protocol.lanes.Lanes`` over the bus of a dispatcher."""

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._seen: dict[tuple[str, ...], Lane] = {}
        self._counts: Counts | None = None
        self._counted = float("-inf")
        self._alone = asyncio.Lock()

    async def load(self) -> Sequence[LaneLoad]:
        """See ``engines.protocol.lanes.Lanes``."""
        async with self._alone:
            if self._clock() - self._counted >= FRESH:
                self._counts = await self._count()
                self._counted = self._clock()
        counts, own = self._counts, self._source.open_lanes()
        live = {Lane(worker.pool, worker.machine_profile, worker.bundle) for worker in self._source.workers()}
        self._seen |= {tuple(map(token, lane)): lane for lane in live.union(own)}
        waiting = {self._named(lane): count for lane, count in (counts or {}).items()}
        loads = []
        for lane in sorted(live.union(own, waiting)):
            queued, unacknowledged = (None, None) if counts is None else waiting.get(lane, (0, 0))
            load = LaneLoad(**lane._asdict(), open=own.get(lane, 0), queued=queued, unacknowledged=unacknowledged)
            loads.append(load)
        return loads

    def _named(self, lane: Lane) -> Lane:
        """A lane as its workers spell it: subjects have escaped names. One that never had a worker here stays so."""
        return self._seen.get(tuple(lane), lane)

    async def _count(self) -> Counts | None:
        """What the queues hold; ``None``: the bus does not tell."""
        client = self._source.client
        if client is None or not client.is_connected:
            return None
        try:
            async with asyncio.timeout(PATIENCE):
                streams = [name for name in await _streams(client) if name.startswith(_STREAMS)]
                found = await asyncio.gather(*(_consumers(client, stream) for stream in streams))
        except (nats.errors.Error, TimeoutError, OSError, msgspec.DecodeError, RuntimeError):
            return None
        counts: Counts = {}
        for consumer in (one for page in found for one in page):
            parts = consumer.config.filter_subject.removeprefix(_WORK).split(".")
            if len(parts) >= 4:
                lane = Lane(*parts[:3])
                waiting, unsettled = counts.get(lane, (0, 0))
                counts[lane] = waiting + consumer.num_pending, unsettled + consumer.num_ack_pending
        return counts


async def _streams(client: Client) -> list[str]:
    names: list[str] = []
    while True:
        page = await _ask(client, "STREAM.NAMES", subject=f"{_WORK}>", offset=len(names))
        names += page.streams or ()
        if not page.streams or len(names) >= page.total:
            return names


async def _consumers(client: Client, stream: str) -> list[_Consumer]:
    found: list[_Consumer] = []
    while True:
        page = await _ask(client, f"CONSUMER.LIST.{stream}", offset=len(found))
        found += page.consumers or ()
        if not page.consumers or len(found) >= page.total:
            return found


async def _ask(client: Client, call: str, **request: object) -> _Page:
    """Ask JetStream.

    Raises:
        RuntimeError: it answered with an error.
        nats.errors.Error, OSError, msgspec.DecodeError: it did not answer, or not in its form.
    """
    reply = await client.request(f"{_API}.{call}", msgspec.json.encode(request), timeout=PATIENCE)
    page = _decode(reply.data)
    if page.error is not None:
        raise RuntimeError(f"{call}: {page.error}")
    return page

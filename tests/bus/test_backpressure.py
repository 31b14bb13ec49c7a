"""A worker whose answers wait for the bus takes no more work, and does what it holds once they have left."""

from __future__ import annotations

import asyncio
import uuid

from engines.bus.payloads import Payloads
from engines.catalog import Catalog
from engines.protocol.cluster import Route, Timeouts
from engines.protocol.events import Completed
from engines.protocol.work import EncodeWork, Item
from engines.worker import outbox
from engines.worker.options import WorkerOptions
from engines.worker.worker import Worker

from .conftest import MINILM, ask, collect, gateway, until
from .fake_worker import ScriptedEngine


async def test_work_waits_while_too_much_waits_to_be_sent(bus, monkeypatch):
    opened = asyncio.Event()
    store = Payloads.store

    async def storing(payloads: Payloads, data: bytes) -> dict[str, str]:
        await opened.wait()
        return await store(payloads, data)

    monkeypatch.setattr(outbox, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(Payloads, "store", storing)
    worker = Worker(WorkerOptions(name="here", drain=0.0), bus, Catalog.from_env({}), ScriptedEngine)
    running = asyncio.create_task(worker.run())
    async with gateway(bus) as cluster:
        dispatcher = cluster.dispatcher
        await until(lambda: len(dispatcher.workers()) == 1)
        work = EncodeWork(request_id=uuid.uuid4().hex, model=MINILM, items=[Item(text=f"bytes:{10 << 20}")])
        large = asyncio.create_task(collect(await dispatcher.submit(work, Route(), Timeouts(60.0))))
        await until(lambda: [status.room for status in dispatcher.workers()] == [0])
        small = asyncio.create_task(ask(cluster, "echo:1", overall=60.0))
        await until(lambda: bool(worker._opening))
        assert worker.status(0, 1).metrics[""]["jobs"] == 1
        opened.set()
        assert isinstance((await large)[-1], Completed)
        assert isinstance((await small)[-1], Completed)
        await until(lambda: worker.status(0, 1).room > 0)
    worker.stop()
    await running

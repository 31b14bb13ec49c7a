"""Heart-beats go on while the threads that everything else shares are busy."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from engines.protocol.cluster import WorkerStatus
from engines.worker.pulse import Pulse


class Bus:
    def __init__(self) -> None:
        self.beats = asyncio.Event()

    async def publish(self, *_of: Any) -> None:
        self.beats.set()


async def test_a_beat_waits_for_no_other_work() -> None:
    bus, done = Bus(), threading.Event()
    busy = [asyncio.create_task(asyncio.to_thread(done.wait, 60)) for _ in range(200)]
    await asyncio.sleep(0.05)
    pulse = Pulse(bus, "w", lambda used, total: WorkerStatus(name="w"))  # type: ignore[arg-type]  # it only publishes
    running = asyncio.create_task(pulse.run())
    try:
        await asyncio.wait_for(bus.beats.wait(), 20)
    finally:
        running.cancel()
        done.set()
        await asyncio.gather(*busy)

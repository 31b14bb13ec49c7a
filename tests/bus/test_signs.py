"""The file by which probes see a worker."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from engines.worker import signs
from engines.worker.signs import FILE, Signs

from .conftest import MODEL, ask, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs, "EVERY", 0.01)


async def test_the_file_has_the_state_is_written_anew_and_goes_with_the_worker(tmp_path: Path) -> None:
    file = tmp_path / "state"
    states: list[signs.State] = ["starting"]
    task = asyncio.create_task(Signs(lambda: states[-1], {FILE: str(file)}).run())
    await until(file.exists)
    assert file.read_text() == "starting"
    states.append("ready")
    await until(lambda: file.read_text() == "ready")
    os.utime(file, (0, 0))
    await until(lambda: file.stat().st_mtime > 0)
    task.cancel()
    await asyncio.wait({task})
    assert os.listdir(tmp_path) == []


async def test_a_file_that_cannot_be_written_does_not_end_the_worker(tmp_path: Path) -> None:
    file = tmp_path / "later" / "state"
    task = asyncio.create_task(Signs(lambda: "ready", {FILE: str(file)}).run())
    await asyncio.sleep(0.05)
    file.parent.mkdir()
    await until(file.exists)
    task.cancel()


async def test_without_the_variable_there_is_no_file() -> None:
    await asyncio.wait_for(Signs(lambda: "ready", {}).run(), 5)


async def test_a_worker_is_ready_when_its_models_are_loaded_and_drains_when_it_is_told_to(
    cluster_of, tmp_path: Path
) -> None:
    file = tmp_path / "state"
    async with cluster_of(**{FILE: str(file), "SIE_PRELOAD_MODELS": MODEL}) as cluster:
        await until(lambda: file.exists() and file.read_text() == "ready")
        await until(lambda: cluster.dispatcher.model_status(MODEL).state == "loaded")
        running = asyncio.create_task(ask(cluster, "slow:1000"))
        await until(lambda: [worker.inflight_batches for worker in cluster.dispatcher.workers()] == [1])
        assert cluster.worker is not None and cluster.worker.pid is not None
        os.kill(cluster.worker.pid, signal.SIGTERM)
        await until(lambda: file.read_text() == "draining")
        running.cancel()

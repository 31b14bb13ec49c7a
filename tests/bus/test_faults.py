"""Death of workers, of the bus and of the gateway: what the caller sees, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from engines.protocol.cluster import Route, Timeouts
from engines.protocol.events import Admitted, Completed, Delta, Failed

from .conftest import MODEL, ask, collect, generate, until

ROOT = Path(__file__).parents[2]


async def test_a_stream_whose_worker_is_killed_fails_and_the_next_request_works(cluster_of):
    async with cluster_of() as cluster:
        answer = await cluster.dispatcher.submit(generate("slow:100000"), Route(), Timeouts(600.0))
        events = []
        async for event in answer:
            events.append(event)
            if isinstance(event, Delta) and len(events) == 4:
                os.kill(worker_pid(cluster), signal.SIGKILL)
        assert isinstance(events[-1], Failed)
        assert events[-1].code == "transport_failure"
        assert isinstance((await ask(cluster, "echo:3"))[-1], Completed)
        assert cluster.worker.starts == 2


async def test_a_blocking_request_survives_its_worker(cluster_of):
    async with cluster_of() as cluster:
        answer = await cluster.dispatcher.submit(generate("block:3", stream=False), Route(), Timeouts(60.0))
        await until(lambda: [worker.inflight_batches for worker in cluster.dispatcher.workers()] == [1])
        os.kill(worker_pid(cluster), signal.SIGKILL)
        first, delta, last = await collect(answer)
        assert isinstance(first, Admitted)
        assert isinstance(delta, Delta)
        assert isinstance(last, Completed)
        assert last.worker != first.worker


async def test_work_outlives_a_load_that_takes_longer_than_its_own_time(cluster_of):
    """The model was there when it was asked for; with its worker it is gone, and has to be loaded again."""
    async with cluster_of(FAKE_LOAD_S="4") as cluster:
        assert isinstance((await ask(cluster, "echo:1"))[-1], Completed)
        await until(lambda: cluster.dispatcher.model_status(MODEL).state == "loaded")
        answer = await cluster.dispatcher.submit(generate("block:2", stream=False), Route(), Timeouts(3.0))
        assert isinstance(await anext(aiter(answer)), Admitted)
        os.kill(worker_pid(cluster), signal.SIGKILL)
        assert isinstance((await collect(answer))[-1], Completed)
        assert cluster.worker.starts == 2


async def test_a_dead_engine_is_replaced_and_work_not_begun_is_done_on_the_new_one(cluster_of):
    async with cluster_of() as cluster:
        first, delta, last = await ask(cluster, "die:1")
        assert isinstance(first, Admitted)
        assert isinstance(delta, Delta)
        assert isinstance(last, Completed)
        assert cluster.worker.starts == 1


async def test_work_whose_engines_all_die_fails_and_the_next_request_works(cluster_of):
    async with cluster_of() as cluster:
        last = (await ask(cluster, "die:9"))[-1]
        assert isinstance(last, Failed)
        assert last.code == "transport_failure"
        assert isinstance((await ask(cluster, "echo:1"))[-1], Completed)
        assert cluster.worker.starts == 1


async def test_sigterm_lets_a_stream_finish(cluster_of):
    async with cluster_of() as cluster:
        answer = await cluster.dispatcher.submit(generate("slow:20"), Route(), Timeouts(60.0))
        iterator = aiter(answer)
        assert isinstance(await anext(iterator), Admitted)
        os.kill(worker_pid(cluster), signal.SIGTERM)
        events = [event async for event in iterator]
        assert isinstance(events[-1], Completed)
        assert len(events) == 21


async def test_draining_ends_a_stream_in_band_and_hands_other_work_back(cluster_of):
    async with cluster_of() as cluster:
        stream = await cluster.dispatcher.submit(generate("slow:100000"), Route(), Timeouts(600.0))
        blocking = await cluster.dispatcher.submit(generate("block:5", stream=False), Route(), Timeouts(60.0))
        await until(lambda: [worker.inflight_batches for worker in cluster.dispatcher.workers()] == [2])
        old = worker_pid(cluster)
        os.kill(old, signal.SIGTERM)
        await asyncio.sleep(0.3)
        os.kill(old, signal.SIGTERM)
        last = (await collect(stream))[-1]
        assert isinstance(last, Failed)
        assert last.code == "transport_failure"
        assert isinstance((await collect(blocking))[-1], Completed)
        assert cluster.worker.starts == 2


async def test_a_killed_bus_comes_back_and_lost_requests_fail_at_once(cluster_of):
    async with cluster_of() as cluster:
        assert isinstance((await ask(cluster, "echo:1"))[-1], Completed)
        answer = await cluster.dispatcher.submit(generate("block:600", stream=False), Route(), Timeouts(600.0))
        os.kill(cluster.server.pid, signal.SIGKILL)
        last = (await collect(answer))[-1]
        assert isinstance(last, Failed)
        assert last.code == "transport_failure"
        await until(lambda: cluster.dispatcher.connected)
        for _ in range(3):
            assert isinstance((await ask(cluster, "echo:2"))[-1], Completed)


async def test_stopping_leaves_no_process_behind(cluster_of):
    async with cluster_of(FAKE_CHILD="1") as cluster:
        answer = await cluster.dispatcher.submit(generate("slow:100000"), Route(), Timeouts(600.0))
        await anext(aiter(answer))
        mine = psutil.Process().children(recursive=True)
        assert len(mine) >= 3
    assert [process for process in mine if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []


async def test_stopping_does_not_wait_for_a_model_that_is_loading_on_a_thread(cluster_of):
    async with cluster_of(FAKE_LOAD_BLOCKS="600") as cluster:
        answer = await cluster.dispatcher.submit(generate("echo:1"), Route(), Timeouts(600.0))
        await until(lambda: any(worker.models for worker in cluster.dispatcher.workers()))
        pid = worker_pid(cluster)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGTERM)
        await until(lambda: not psutil.pid_exists(pid), limit=20.0)
        await answer.aclose()


def test_a_killed_gateway_takes_its_bus_and_worker_with_it():
    gateway = subprocess.Popen(
        [sys.executable, "-m", "tests.bus.fake_gateway"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert gateway.stdout is not None
    assert gateway.stdout.readline() == "completed\n"
    family = psutil.Process(gateway.pid).children(recursive=True)
    assert {process.name() for process in family} >= {"nats-server"}
    gateway.kill()
    gateway.wait()
    psutil.wait_procs(family, timeout=20)
    assert [process for process in family if process.is_running()] == []
    gateway.stdout.close()


def test_the_gateway_side_imports_no_engine():
    script = """
import sys
import engines.cluster, engines.worker.cli
engines.cluster.Cluster.from_env({})
print(sorted({"torch", "transformers", "vllm", "sentence_transformers"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def worker_pid(cluster) -> int:
    return cluster.worker.pid

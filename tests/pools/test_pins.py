"""Pinned models, from the pool to a worker process that loads them and keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from engines.protocol.cluster import WorkerStatus
from engines.protocol.events import Completed, Failed
from engines.protocol.pools import PoolRecord, PoolSpec, pinned
from tests.bus.conftest import MINILM, MODEL, ask, until


def record(**fields: object) -> PoolRecord:
    return PoolRecord(spec=PoolSpec(name="p", **fields), created_at=0.0, last_renewed=0.0)  # type: ignore[arg-type]


def test_a_worker_is_told_what_its_pools_pin() -> None:
    worker = WorkerStatus(name="w", machine_profile="l4")
    wanted = {"gpus": {"L4": 1}, "pinned_models": ("a", "b:fast")}
    assert pinned([record(**wanted)], worker, 1.0) == {"a", "b:fast"}
    for other in (
        {"gpus": {"h100": 1}},
        {"gpu_caps": {"l4": 0}},
        {"queue_pool": "batch"},
        {"bundle": "other"},
        {"ttl_seconds": 0},
    ):
        assert pinned([record(**{**wanted, **other})], worker, 1.0) == set()


async def test_a_pinned_model_is_loaded_and_stays_until_its_pin_is_gone(cluster_of: Callable[..., object]) -> None:
    # a budget for one engine: an idle one is evicted for the next one
    async with cluster_of(FAKE_MEMORY_BUDGET="1000") as cluster:  # type: ignore[attr-defined]
        await until(lambda: bool(cluster.dispatcher.workers()))
        profile = cluster.dispatcher.workers()[0].machine_profile
        await cluster.pools.put(PoolSpec(name="warm", gpus={profile: 1}, pinned_models=(MINILM,)))
        await until(lambda: cluster.dispatcher.model_status(MINILM).state == "loaded")
        (failed,) = await ask(cluster, "echo:1")
        assert isinstance(failed, Failed)
        assert failed.code == "MODEL_LOAD_FAILED"
        assert "pinned models hold 1000 of the memory budget of 1000 bytes" in failed.message
        assert failed.details["permanent"] is False
        assert cluster.dispatcher.model_status(MINILM).state == "loaded"
        await cluster.pools.delete("warm")
        async with asyncio.timeout(20):
            while not isinstance((await ask(cluster, "echo:1"))[-1], Completed):  # noqa: ASYNC110  # nothing signals it
                await asyncio.sleep(0.1)
        await until(lambda: cluster.dispatcher.model_status(MINILM).state == "available")


async def test_a_worker_pins_only_what_its_bundle_can_run(cluster_of: Callable[..., object], tmp_path: Path) -> None:
    for bundle, adapter in (("default", "retrieval.sentence_transformer"), ("other", "vllm")):
        text = f"name: {bundle}\nadapters: [engines.adapters.{adapter}]\n"
        (tmp_path / f"{bundle}.yaml").write_text(text)
    async with cluster_of(SIE_BUNDLES_DIR=str(tmp_path)) as cluster:  # type: ignore[attr-defined]
        await until(lambda: bool(cluster.dispatcher.workers()))
        profile = cluster.dispatcher.workers()[0].machine_profile
        await cluster.pools.put(PoolSpec(name="warm", gpus={profile: 1}, pinned_models=(MODEL, MINILM)))
        await until(lambda: cluster.dispatcher.model_status(MINILM).state == "loaded")
        assert cluster.dispatcher.model_status(MODEL).state == "available"

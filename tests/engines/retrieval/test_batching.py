"""The batching engine over a model that betrays any mix-up: its answer to a text is the text."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.batching import Batcher, Closed, Limits, OutOfMemory, Overloaded, Tokenized


class Ran(MemoryError):
    """Out of memory, as the dummy says it."""


class Dummy:
    """Texts are ``(name, length)``; a row is the name. Keeps the batches it saw, in order."""

    padded = True

    def __init__(self, memory: int = 1 << 30) -> None:
        self.batches: list[list[tuple[Any, int]]] = []
        self.memory = memory
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.forward_threads: set[int] = set()
        self.tokenize_threads: set[int] = set()

    def estimate(self, inputs: Sequence[Any]) -> int:
        return sum(length for _, length in inputs)

    def tokenize(self, inputs: Sequence[Any]) -> list[Tokenized]:
        self.tokenize_threads.add(threading.get_ident())
        if any(name == "untokenizable" for name, _ in inputs):
            raise ValueError("untokenizable")
        return [Tokenized(length, (name, length), length % 2 == 0 and "even", length) for name, length in inputs]

    def forward(self, batch: Sequence[Any], share: int) -> list[Any]:
        self.forward_threads.add(threading.get_ident())
        self.batches.append(list(batch))
        self.entered.release()
        assert self.gate.wait(20)
        if max(length for _, length in batch) * len(batch) > self.memory:
            raise Ran
        if any(name == "poison" for name, _ in batch):
            raise ValueError("poison")
        return [name for name, _ in batch]

    def rows(self, output: list[Any], count: int) -> list[Any]:
        assert len(output) == count
        return output

    def is_out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, Ran)


@asynccontextmanager
async def running(model: Any, **limits: int) -> AsyncIterator[Batcher]:
    batcher = Batcher(model, Limits(**limits))
    batcher.start()
    try:
        yield batcher
    finally:
        model.gate.set()
        await batcher.close()


def texts(name: str, lengths: Sequence[int]) -> list[tuple[Any, int]]:
    return [((name, i), length) for i, length in enumerate(lengths)]


def names(inputs: Sequence[tuple[Any, int]]) -> list[Any]:
    return [name for name, _ in inputs]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # the state belongs to the engine's threads
            await asyncio.sleep(0.001)


async def entered(model: Dummy, count: int = 1) -> None:
    """Wait until the model is inside that many forward passes."""
    for _ in range(count):
        assert await asyncio.to_thread(model.entered.acquire, timeout=10)


async def test_results_come_in_the_order_of_the_inputs() -> None:
    model = Dummy()
    async with running(model, batch_tokens=40) as batcher:
        inputs = texts("a", [random.Random(1).randint(1, 30) for _ in range(200)])
        done = await batcher.submit(inputs, list)
    assert done.value == names(inputs)
    assert done.tokens == [length for _, length in inputs]


async def test_requests_that_wait_together_share_batches() -> None:
    model = Dummy()
    async with running(model, batch_tokens=1000) as batcher:
        model.gate.clear()
        first = asyncio.create_task(batcher.submit(texts("first", [10]), list))
        await entered(model)
        others = [asyncio.create_task(batcher.submit(texts(f"r{i}", [10]), list)) for i in range(20)]
        await until(lambda: batcher.load().pending_tokens == 210)
        await asyncio.sleep(0.05)
        model.gate.set()
        await asyncio.gather(first, *others)
    assert len(model.batches) == 2
    assert len(model.batches[1]) == 20


async def test_a_lone_request_waits_for_nobody() -> None:
    """Nothing else arrives, and yet the batch, far from full, runs at once: the model is entered without a timer."""
    model = Dummy()
    async with running(model, batch_tokens=1_000_000, workers=1) as batcher:
        done = await asyncio.wait_for(batcher.submit(texts("lone", [3]), list), 5)
    assert done.value == [("lone", 0)]


async def test_batches_keep_to_the_budget_padding_counted() -> None:
    model = Dummy()
    async with running(model, batch_tokens=100) as batcher:
        await batcher.submit(texts("a", [random.Random(2).randint(1, 50) for _ in range(300)]), list)
    for batch in model.batches:
        assert max(length for _, length in batch) * len(batch) <= 100


async def test_a_batch_is_padded_little() -> None:
    model = Dummy()
    async with running(model, batch_tokens=2000) as batcher:
        await batcher.submit(texts("a", [random.Random(3).randint(1, 250) for _ in range(64)]), list)
    area = sum(max(length for _, length in batch) * len(batch) for batch in model.batches)
    assert area <= 1.15 * sum(length for batch in model.batches for _, length in batch) + 64 * len(model.batches)


async def test_a_text_over_the_budget_runs_alone() -> None:
    model = Dummy()
    async with running(model, batch_tokens=100) as batcher:
        done = await batcher.submit(texts("a", [5, 1001, 7, 999, 6]), list)
    assert done.value == names(texts("a", [0] * 5))
    assert [len(batch) for batch in model.batches if max(length for _, length in batch) > 100] == [1, 1]


async def test_a_single_text_does_not_wait_for_a_request_of_hundreds() -> None:
    model = Dummy()
    async with running(model, batch_tokens=100) as batcher:
        model.gate.clear()
        big = asyncio.create_task(batcher.submit(texts("big", [10] * 256), list))
        await entered(model)
        small = [asyncio.create_task(batcher.submit(texts(f"small{i}", [25 + 2 * i]), list)) for i in range(4)]
        await until(lambda: batcher.load().requests == 5)
        await asyncio.sleep(0.05)
        model.gate.set()
        await asyncio.gather(big, *small)
    position = {name[0]: i for i, batch in enumerate(model.batches) for name, _ in batch if name[0] != "big"}
    assert max(position.values()) <= 5, "each ran among the first, before the 256 texts were through"
    assert len(model.batches) > 20


async def test_a_request_of_hundreds_is_not_starved_by_single_texts() -> None:
    model = Dummy()
    async with running(model, batch_tokens=50) as batcher:
        big = asyncio.create_task(batcher.submit(texts("big", [11] * 64), list))
        stop = False

        async def stream(name: str) -> None:
            while not stop:
                await batcher.submit(texts(name, [30]), list)

        streams = [asyncio.create_task(stream(f"s{i}")) for i in range(8)]
        async with asyncio.timeout(20):
            assert len((await big).value) == 64
        stop = True
        await asyncio.gather(*streams)


async def test_idle_workers_share_one_request() -> None:
    model = Dummy()
    async with running(model, batch_tokens=10_000, least_batch_tokens=10, workers=2) as batcher:
        await batcher.submit(texts("warm", [2]), list)
        await entered(model)
        model.gate.clear()
        one = asyncio.create_task(batcher.submit(texts("a", [20] * 8), list))
        await entered(model, 2)
        assert [len(batch) for batch in model.batches[1:]] == [4, 4]
        model.gate.set()
        await one


async def test_little_work_is_not_spread_thin() -> None:
    model = Dummy()
    async with running(model, batch_tokens=10_000, least_batch_tokens=256, workers=4) as batcher:
        await batcher.submit(texts("a", [20] * 8), list)
    assert [len(batch) for batch in model.batches] == [8]


async def test_admission_is_by_tokens_and_alike_for_large_and_small() -> None:
    for portions in ([[10] * 32], [[10]] * 32):
        model = Dummy()
        async with running(model, batch_tokens=10, pending_tokens=320) as batcher:
            model.gate.clear()
            admitted = [asyncio.ensure_future(batcher.submit(texts(f"{i}", p), list)) for i, p in enumerate(portions)]
            with pytest.raises(Overloaded) as refused:
                batcher.submit(texts("late", [1]), list)
            assert refused.value.retry_after >= 1
            model.gate.set()
            await asyncio.gather(*admitted)
            assert (await batcher.submit(texts("again", [1]), list)).value == [("again", 0)]
            assert batcher.load().pending_tokens == 0


async def test_a_request_over_the_limit_runs_when_there_is_room() -> None:
    async with running(Dummy(), batch_tokens=10, pending_tokens=20) as batcher:
        assert len((await batcher.submit(texts("large", [10] * 50), list)).value) == 50


async def test_out_of_memory_halves_until_it_fits() -> None:
    model = Dummy(memory=120)
    async with running(model, batch_tokens=1000) as batcher:
        inputs = texts("a", [10] * 100)
        done = await batcher.submit(inputs, list)
    assert done.value == names(inputs)
    assert max(len(batch) for batch in model.batches) * 10 > 120, "it did run out"


async def test_after_out_of_memory_batches_stay_small_for_a_while() -> None:
    model = Dummy(memory=120)
    async with running(model, batch_tokens=1000) as batcher:
        await batcher.submit(texts("a", [10] * 100), list)
        seen = len(model.batches)
        await batcher.submit(texts("b", [10] * 100), list)
    assert all(len(batch) * 10 <= 120 for batch in model.batches[seen:])


async def test_one_text_that_never_fits_fails_alone() -> None:
    model = Dummy(memory=100)
    async with running(model, batch_tokens=1000) as batcher:
        model.gate.clear()
        first = asyncio.create_task(batcher.submit(texts("first", [1]), list))
        await entered(model)
        huge = asyncio.create_task(batcher.submit(texts("huge", [400]), list))
        fine = [asyncio.create_task(batcher.submit(texts(f"fine{i}", [50]), list)) for i in range(5)]
        await until(lambda: batcher.load().requests == 7)
        model.gate.set()
        with pytest.raises(OutOfMemory):
            await huge
        await asyncio.gather(first, *fine)


@pytest.mark.parametrize("fault", ["poison", "untokenizable"])
async def test_a_fault_stays_with_its_request(fault: str) -> None:
    model = Dummy()
    async with running(model, batch_tokens=1000) as batcher:
        model.gate.clear()
        first = asyncio.create_task(batcher.submit(texts("first", [10]), list))
        await entered(model)
        bad = asyncio.create_task(batcher.submit([(fault, 10), *texts("bad", [10, 10])], list))
        good = [asyncio.create_task(batcher.submit(texts(f"good{i}", [10] * 3), list)) for i in range(5)]
        await until(lambda: batcher.load().requests == 7)
        model.gate.set()
        with pytest.raises(ValueError, match=fault):
            await bad
        assert [done.value for done in await asyncio.gather(*good)] == [
            names(texts(f"good{i}", [0] * 3)) for i in range(5)
        ]
        await first
        assert batcher.load().requests == 0


async def test_work_whose_caller_has_gone_is_not_run() -> None:
    model = Dummy()
    async with running(model, batch_tokens=50) as batcher:
        model.gate.clear()
        first = asyncio.create_task(batcher.submit(texts("first", [10]), list))
        await entered(model)
        gone = asyncio.create_task(batcher.submit(texts("gone", [10] * 100), list))
        stays = asyncio.create_task(batcher.submit(texts("stays", [11] * 3), list))
        await until(lambda: batcher.load().requests == 3)
        await asyncio.sleep(0.05)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert batcher.load().pending_tokens == 43
        model.gate.set()
        await asyncio.gather(first, stays)
        assert not any(name[0] == "gone" for batch in model.batches for name, _ in batch)


async def test_stages_run_off_the_event_loop() -> None:
    model = Dummy()
    finish_threads: list[int] = []

    def finish(rows: list[Any]) -> int:
        finish_threads.append(threading.get_ident())
        return len(rows)

    async with running(model, batch_tokens=50) as batcher:
        assert (await batcher.submit(texts("a", [10] * 9), finish)).value == 9
    here = threading.get_ident()
    threads = [model.tokenize_threads, model.forward_threads, set(finish_threads)]
    assert all(len(some) == 1 and here not in some for some in threads)
    assert len(set.union(*threads)) == 3


async def test_closing_fails_what_is_under_way_and_ends_the_threads() -> None:
    model = Dummy()
    before = set(threading.enumerate())
    batcher = Batcher(model, Limits(batch_tokens=10), "closing")
    batcher.start()
    model.gate.clear()
    task = asyncio.create_task(batcher.submit(texts("a", [10] * 10), list))
    await entered(model)
    closing = asyncio.create_task(batcher.close())
    with pytest.raises(Closed):
        await task
    model.gate.set()
    await closing
    assert not [thread for thread in threading.enumerate() if thread not in before and "closing" in thread.name]
    with pytest.raises(Closed):
        batcher.submit(texts("late", [1]), list)


async def test_a_dead_thread_is_noticed_and_nobody_waits_for_ever() -> None:
    class Broken(Dummy):
        def is_out_of_memory(self, error: Exception) -> bool:
            raise RuntimeError("the check itself is broken")

    model = Broken()
    async with running(model, batch_tokens=10) as batcher:
        with pytest.raises(Closed, match="the check itself"):
            await asyncio.wait_for(batcher.submit([("poison", 1)], list), 10)
        with pytest.raises(Closed):
            batcher.submit(texts("later", [1]), list)


async def test_timing_adds_up() -> None:
    async with running(Dummy(), batch_tokens=50) as batcher:
        began = time.perf_counter()
        done = await batcher.submit(texts("a", [10] * 30), list)
        elapsed = (time.perf_counter() - began) * 1e3
    parts = done.queue_ms + done.tokenization_ms + done.inference_ms + done.postprocessing_ms
    assert min(done.queue_ms, done.tokenization_ms, done.inference_ms, done.postprocessing_ms) >= 0
    assert parts == pytest.approx(done.total_ms, abs=0.01)
    assert done.total_ms <= elapsed


LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=90)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    requests=st.lists(LENGTHS, min_size=1, max_size=12),
    budget=st.integers(1, 600),
    workers=st.integers(1, 3),
    memory=st.integers(250, 2000),
    cancelled=st.sets(st.integers(0, 11)),
    pauses=st.lists(st.sampled_from([0, 0, 0.001]), min_size=12, max_size=12),
)
def test_any_order_of_lengths_ends_with_everyone_served(
    requests: list[list[int]], budget: int, workers: int, memory: int, cancelled: set[int], pauses: list[float]
) -> None:
    async def all_of_them() -> None:
        model = Dummy(memory=memory)
        async with running(model, batch_tokens=budget, workers=workers, least_batch_tokens=8) as batcher:

            async def one(index: int, lengths: list[int]) -> None:
                inputs = texts(str(index), lengths)
                await asyncio.sleep(pauses[index])
                task = asyncio.create_task(batcher.submit(inputs, list))
                if index in cancelled:
                    await asyncio.sleep(pauses[index])
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                elif max(lengths) > memory:
                    with pytest.raises(OutOfMemory):
                        await task
                else:
                    assert (await task).value == names(inputs)

            async with asyncio.timeout(30):
                await asyncio.gather(*(one(i, lengths) for i, lengths in enumerate(requests)))
            await until(lambda: batcher.load().running == 0)
            assert batcher.load().pending_tokens == 0

    asyncio.run(all_of_them())

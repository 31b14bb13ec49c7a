"""Everything is replaced under load, one process after another: callers with the OpenAI SDK's defaults see nothing."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest

from . import answers
from .questions import Asker, Outcome, Question, questions, with_sdk
from .testbed import Process, Testbed

SEED = 7
CALLERS = 12
PAUSE_S = 0.1


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Testbed]:
    made = Testbed(tmp_path, workers=3, settings={"SIE_DRAIN_TIMEOUT_S": "20"})
    try:
        await made.start()
        yield made
    finally:
        statuses = await made.stop()
    assert set(statuses.values()) == {0, -signal.SIGTERM}, statuses


class Callers:
    """Callers who ask one question after another, through one address, until told to stop."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/v1"
        self._stop = asyncio.Event()
        self._asked = iter([q for q in questions(SEED, 100_000) if q.kind != "rerank"])
        self.outcomes: list[Outcome] = []
        self.tries: Counter[str] = Counter()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(self._call())

    def stop(self) -> None:
        self._stop.set()

    async def _call(self) -> None:
        async with openai.AsyncOpenAI(base_url=self._url, api_key="unused") as client:
            assert client.max_retries == openai.DEFAULT_MAX_RETRIES == 2
            client._client.event_hooks["request"].append(self._note)
            while not self._stop.is_set():
                self.outcomes.append(await self._ask(client, next(self._asked)))
                await asyncio.sleep(PAUSE_S)

    @staticmethod
    async def _ask(client: openai.AsyncOpenAI, question: Question) -> Outcome:
        try:
            async with asyncio.timeout(180):
                return await with_sdk(client, question)
        except TimeoutError:
            return Outcome(question, "fault", "no end within 180 s")
        except (openai.APIConnectionError, httpx.HTTPError) as error:
            return Outcome(question, "fault", f"the connection broke: {error!r}: {error.__cause__!r}")

    async def _note(self, request: httpx.Request) -> None:
        self.tries[request.headers.get("x-stainless-retry-count", "0")] += 1


@pytest.mark.timeout(600)
async def test_a_rolling_restart_is_not_seen_by_callers(bed: Testbed) -> None:
    callers = Callers(bed.front)
    running = asyncio.create_task(callers.run())
    try:
        for group in (bed.gateways, bed.workers, bed.nodes):
            for process in group:
                await restart(bed, process)
                print(f"{process.name} was restarted: {len(callers.outcomes)} answers, tries {dict(callers.tries)}")
    finally:
        callers.stop()
        await running
    print(Counter(f"{outcome.question.kind} {outcome.verdict}" for outcome in callers.outcomes))
    assert [outcome for outcome in callers.outcomes if outcome.verdict != "right"] == [], bed.tail()
    assert len(callers.outcomes) > 500


async def restart(bed: Testbed, process: Process) -> None:
    """As a careful operator does: the next one's turn comes when this one is back and all is well."""
    await asyncio.sleep(1.0)
    process.send(signal.SIGTERM)
    await process.ended(60.0)
    process.start()
    await bed.nodes_are_well()
    await bed.gateways_know(len(bed.workers))


async def test_what_comes_with_the_signal_is_answered(bed: Testbed) -> None:
    """A gateway that had nothing to do takes requests until its port is closed, and answers them in full."""
    asked = Question(0, "stream", (answers.question("late", 20, 50),), by_sdk=False)
    seen: list[str] = []
    for url, process in zip(bed.urls(), bed.gateways, strict=True):
        async with Asker([url], 60.0) as asker:
            assert (await asker.ask(asked)).verdict == "right"  # leaves an open connection
            process.send(signal.SIGTERM)
            outcome = await asker.ask(asked)
        seen.append(outcome.detail or outcome.verdict)
        await process.ended(60.0)
        process.start()
    assert "right" in seen
    assert [one for one in seen if one != "right" and not one.startswith("the connection broke")] == []

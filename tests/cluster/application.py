"""The application of Oasgate with an engine that sleeps and answers by a rule, for ``litestar --app ... worker``.

Everything but the engine is the real thing: command line, bus, worker, catalog. With ``OASGATE_TEST_RUNS`` set, a line
is appended to that file for each question that an engine begins.
"""

from __future__ import annotations

import asyncio
import os
import struct

import engines.adapters
from app import create_app
from engines.adapters.base import EngineStatus, Reply
from engines.protocol.catalog import ModelEntry, Profile
from engines.protocol.events import EncodeOutput, ScoreOutput, Tensor, Timing, Usage
from engines.protocol.work import EncodeWork, GenerateWork, ScoreWork, Work

from . import answers


class RuleEngine:
    """Answers every kind of work that the cluster tests ask for, by ``tests.cluster.answers``."""

    def __init__(self, entry: ModelEntry, profile: Profile) -> None:
        self._running = 0
        path = os.environ.get("OASGATE_TEST_RUNS")
        self._runs = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if path else None

    async def load(self) -> None:
        return None

    async def run(self, work: Work, reply: Reply) -> None:
        self._running += 1
        try:
            match work:
                case GenerateWork():
                    await self._generate(work, reply)
                case EncodeWork():
                    await self._encode(work, reply)
                case ScoreWork():
                    await self._score(work, reply)
        finally:
            self._running -= 1

    async def _generate(self, work: GenerateWork, reply: Reply) -> None:
        text = str(work.messages[-1]["content"]) if work.messages else work.prompt or ""
        _, count, pause = answers.read(text)
        self._note(text)
        reply.admitted(prompt_tokens=7)
        said = answers.words(text)
        if not work.stream:
            await asyncio.sleep(pause * count)
            reply.delta(text="".join(said), tokens=count, finish_reason="stop")
        else:
            for index, word in enumerate(said, 1):
                await asyncio.sleep(pause)
                reply.delta(text=word, tokens=1, finish_reason="stop" if index == count else None)
        reply.completed(usage=Usage(prompt_tokens=7, completion_tokens=count), timing=Timing())

    async def _encode(self, work: EncodeWork, reply: Reply) -> None:
        texts = [item.text or "" for item in work.items]
        self._note(texts[0])
        reply.admitted(prompt_tokens=7)
        await asyncio.sleep(answers.read(texts[0])[2])
        rows = [value for text in texts for value in answers.vector(text)]
        tensor = Tensor("<f4", (len(texts), answers.DIMS), struct.pack(f"<{len(rows)}f", *rows))
        output = EncodeOutput(dense=tensor, dense_dims=answers.DIMS)
        reply.completed(usage=Usage(prompt_tokens=7), timing=Timing(), output=output)

    async def _score(self, work: ScoreWork, reply: Reply) -> None:
        query = work.query.text or ""
        self._note(query)
        reply.admitted(prompt_tokens=7)
        await asyncio.sleep(answers.read(query)[2])
        scores = [answers.score(query, item.text or "") for item in work.items]
        output = ScoreOutput(scores=scores, kind="logit")
        reply.completed(usage=Usage(prompt_tokens=7), timing=Timing(), output=output)

    def _note(self, text: str) -> None:
        if self._runs is not None:
            os.write(self._runs, f"{answers.read(text)[0]}\n".encode())

    def status(self) -> EngineStatus:
        return EngineStatus(inflight_batches=self._running, memory_bytes=1000)

    async def close(self) -> None:
        if self._runs is not None:
            os.close(self._runs)
            self._runs = None


engines.adapters.create = RuleEngine
app = create_app()

"""An answer whose last events are lost on the way ends soon, not with a timeout."""

from __future__ import annotations

from typing import Any

import pytest

from engines.dispatcher import answer as answer_module
from engines.protocol.cluster import Route, Timeouts
from engines.protocol.events import Admitted, Completed

from .conftest import ask, collect, generate, until


@pytest.mark.parametrize("stream", [False, True])
async def test_an_end_that_is_lost_is_told_soon(cluster_of: Any, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    monkeypatch.setattr(answer_module, "FIRST_LOOK", 0.5)
    async with cluster_of() as cluster:
        answer = await cluster.dispatcher.submit(generate("block:1", stream=stream), Route(), Timeouts(600.0))
        events = aiter(answer)
        assert isinstance(await anext(events), Admitted)
        lost: list[bytes] = []
        with monkeypatch.context() as patched:
            patched.setattr(cluster.dispatcher, "_feed", lost.append)
            await until(lambda: len(lost) > 0)
        last = (await collect(answer))[-1]
        assert isinstance(last, Completed), "what was lost is sent again"
        assert isinstance((await ask(cluster, "echo:2"))[-1], Completed)


async def test_an_answer_that_is_only_slow_is_left_alone(cluster_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_module, "FIRST_LOOK", 0.1)
    async with cluster_of() as cluster:
        last = (await ask(cluster, "block:2", stream=False))[-1]
        assert isinstance(last, Completed)

"""The pages over a cluster that a test makes up: nothing there, something wrong; and texts that can be read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import app
from engines.protocol.cluster import ModelStatus
from handlers.http.access import AccessLog
from tests.http.test_socket import Uvicorn
from tests.pages.browser import COMMAND, Browser, Tab
from tests.pages.test_pages import VIEW, no_sideways_scrolling
from tests.pools.fakes import World, worker

pytestmark = pytest.mark.skipif(COMMAND is None, reason="chromium is not installed")
FAINT = Path(__file__).with_name("faint.js").read_text()
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
LONG = "gpu-node-{}.rack-{}.eu-west-1.compute.example.internal"
MODELS = [
    ModelStatus(name=MINILM, state="loaded"),
    ModelStatus(name="HuggingFaceTB/SmolLM2-135M-Instruct", state="loading"),
    ModelStatus(name="openai/whisper-tiny.en", state="failed", last_error="OSError: no such file"),
]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with Browser() as opened:
        yield opened


@contextmanager
def serving(world: World) -> Iterator[str]:
    with Uvicorn(app.create_app(world.services, AccessLog(None))) as running:
        yield running.url


def crowd() -> World:
    seen: dict[str, Any] = {"gpu_count": 4, "models": MODELS, "memory_total_bytes": 1 << 36}
    seen |= {"queue_depth": 2, "inflight_batches": 1}
    workers = [worker(LONG.format(n, n // 3), "h100", healthy=n != 5, **seen) for n in range(8)]
    return World(*workers)


async def shown(tab: Tab) -> list[str]:
    """The tiles of the status page, each as one line."""
    await tab.until("document.getElementById('live').textContent === 'live'", "the first frame")
    await tab.until("document.querySelectorAll('#models tr').length >= 4", "the models")
    found = await tab.run("[...document.querySelectorAll('.tile')].map((one) => one.innerText.replace(/\\s+/g, ' '))")
    return [str(line) for line in found]


async def test_a_cluster_without_workers_says_so(browser: Browser) -> None:
    with serving(World()) as url:
        async with await browser.open(url, width=390) as tab:
            tiles = await shown(tab)
            assert tiles[:2] == ["0 of 0 workers none yet", "0 of 4 models available"]
            assert "No worker has been heard from" in await tab.text()
            assert tab.faults == []


async def test_what_is_wrong_is_said_first_and_in_words(browser: Browser) -> None:
    with serving(crowd()) as url:
        async with await browser.open(url, width=1280) as tab:
            tiles = await shown(tab)
            assert tiles[:3] == ["7 of 8 workers 1 silent", "1 of 4 models 1 failed", "28 GPUs"]
            assert tiles[3] == "24 requests at workers"
            states = await tab.run("[...document.querySelectorAll('#models .state')].map((one) => one.textContent)")
            assert states == ["failed", "loading", "loaded", "available"]
            assert tab.faults == []


async def test_pools_say_when_they_end(browser: Browser) -> None:
    with serving(crowd()) as url:
        async with httpx.AsyncClient(base_url=url) as http:
            for name, ttl in (("by-default", None), ("short", 300)):
                body = {"name": name, "gpus": {"h100": 1}, "ttl_seconds": ttl}
                assert (await http.post("/v1/pools", json=body)).status_code == 201
        async with await browser.open(url, width=1280) as tab:
            await tab.until("document.querySelectorAll('#pools tr').length === 3", "the pools")
            rows = await tab.run("[...document.querySelectorAll('#pools tr')].map((row) => row.lastChild.innerText)")
            assert rows == ["never", "in 20 min", "in 5 min"]
            assert tab.faults == []


@VIEW
@pytest.mark.parametrize("path", ["/", "/playground", "/docs"])
async def test_texts_stand_out_from_what_is_behind_them(browser: Browser, path: str, width: int, dark: bool) -> None:
    ready = {
        "/": "document.querySelectorAll('#workers tr').length === 8",
        "/playground": "document.getElementById('chat-model').options.length > 0",
        "/docs": "document.body.innerText.includes('chat/completions')",
    }
    with serving(crowd()) as url:
        async with await browser.open(url + path, width=width, dark=dark) as tab:
            await tab.until(ready[path], "the page")
            assert await tab.run(FAINT) == []
            await no_sideways_scrolling(tab, width)
            assert tab.faults == []

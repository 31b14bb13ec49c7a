"""The pages in a real browser against the real server, which asks for a token: what they show, and that nothing breaks.

With ``OASGATE_SCREENSHOTS`` set to a folder the pictures go there, otherwise to the test's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.live import CHAT_MODEL, EMBEDDING_MODEL, KEY, Server
from tests.pages.browser import COMMAND, Browser, Tab

pytestmark = pytest.mark.skipif(COMMAND is None, reason="chromium is not installed")
VIEWS = [(1280, False), (1280, True), (390, False), (390, True)]
VIEW = pytest.mark.parametrize(
    ("width", "dark"), VIEWS, ids=[f"{width}-{'dark' if dark else 'light'}" for width, dark in VIEWS]
)
REFUSED = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"
"""What Chromium itself notes about a page that came with status 401."""


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with Browser() as opened:
        yield opened


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("OASGATE_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def sign_in(tab: Tab, token: str = KEY) -> None:
    """Give the token as a person does."""
    await tab.until("!document.getElementById('sign-in').hidden", "the question for a token")
    await tab.run(f"document.getElementById('token').value = {json.dumps(token)}")
    await tab.run("document.getElementById('sign-in').requestSubmit()")


def own_faults(tab: Tab) -> list[str]:
    """What the console complained about, without the status of the page itself."""
    return [fault for fault in tab.faults if not fault.startswith(REFUSED)]


async def no_sideways_scrolling(tab: Tab, width: int) -> None:
    assert await tab.run("document.documentElement.scrollWidth") <= width


@asynccontextmanager
async def at_work(server: Server) -> AsyncIterator[None]:
    """Chat and embeddings until the block ends, so that the charts have something to draw."""
    over = False
    chat = {"model": CHAT_MODEL, "messages": [{"role": "user", "content": "Tell a story."}], "max_tokens": 24}
    texts = {"model": EMBEDDING_MODEL, "input": ["one text", "another text"]}

    async def again(path: str, body: object, pause: float = 0.0) -> None:
        while not over:
            status, _ = await asyncio.to_thread(server.post, path, body)
            assert status == 200
            await asyncio.sleep(pause)

    async with asyncio.TaskGroup() as group:
        group.create_task(again("/v1/chat/completions", chat | {"stream": True}))
        group.create_task(again("/v1/chat/completions", chat))
        # with a pause, or they leave the chats no core of a small machine
        group.create_task(again("/v1/embeddings", texts, pause=0.15))
        try:
            yield
        finally:
            over = True


@VIEW
async def test_status_page_shows_the_live_cluster(
    server: Server, browser: Browser, pictures: Path, width: int, dark: bool
) -> None:
    async with at_work(server), await browser.open(f"{server.url}/", width=width, dark=dark) as tab:
        await sign_in(tab)
        await tab.until("document.getElementById('live').textContent === 'live'", "the first frame")
        # a picture of a cluster at work takes some time of work
        await asyncio.sleep(25.0 if "OASGATE_SCREENSHOTS" in os.environ else 4.0)
        await tab.until("/[1-9]/.test(document.querySelectorAll('.chart b')[1].textContent)", "tokens per second")
        await tab.until("document.querySelectorAll('#models tr').length > 1", "the list of models")
        shown = await tab.text()
        (worker,) = await tab.run("[...document.querySelectorAll('#workers .name')].map((cell) => cell.textContent)")
        _, health = await asyncio.to_thread(server.request, "GET", "/health")
        assert worker == health["workers"][0]["name"]
        assert CHAT_MODEL in shown and EMBEDDING_MODEL in shown
        states = await tab.run("[...document.querySelectorAll('#models .state')].map((state) => state.textContent)")
        assert states.count("loaded") == len([model for model in health["models"] if model["state"] == "loaded"])
        assert await tab.run("[...document.querySelectorAll('#pools .name')].map((cell) => cell.textContent)") == [
            "default"
        ]
        assert await tab.run("document.querySelectorAll('.chart path.line').length") >= 6
        await no_sideways_scrolling(tab, width)
        await tab.picture(pictures / f"status-{width}-{'dark' if dark else 'light'}.png")
        assert own_faults(tab) == []


@VIEW
async def test_playground_chats_compares_and_ranks(
    server: Server, browser: Browser, pictures: Path, width: int, dark: bool
) -> None:
    view = f"{width}-{'dark' if dark else 'light'}"
    async with await browser.open(f"{server.url}/playground", width=width, dark=dark) as tab:
        await sign_in(tab)
        await tab.until("document.getElementById('chat-model').options.length", "the models")
        await tab.run(
            "window.seen = new Set(); const answer = () => document.querySelector('.turn.assistant');"
            "const look = () => seen.add(answer()?.textContent);"
            "const all = {childList: true, subtree: true, characterData: true};"
            "new MutationObserver(look).observe(document.getElementById('talk'), all);"
            "document.getElementById('chat-tokens').value = 24; document.getElementById('chat').requestSubmit()"
        )
        await tab.until("document.getElementById('chat-note').textContent.includes('first token after')", "an answer")
        assert await tab.run("window.seen.size") > 3, "the answer came in one piece"
        assert await tab.run("document.querySelector('.turn.assistant').lastChild.textContent.trim() !== ''")
        await no_sideways_scrolling(tab, width)
        await tab.picture(pictures / f"playground-chat-{view}.png")

        await tab.run("document.getElementById('tab-embed').click(); document.getElementById('embed').requestSubmit()")
        await tab.until("document.querySelectorAll('.heat td[data-value]').length === 25", "the heat map")
        values = await tab.run(
            "[...document.querySelectorAll('.heat td[data-value]')].map((cell) => +cell.dataset.value)"
        )
        assert all(abs(values[i * 6] - 1.0) < 1e-3 for i in range(5)), "a text is not like itself"
        assert values[1] > max(values[2:5]), "the cat is not nearest to the kitten"
        colours = await tab.run("[...document.querySelectorAll('.heat td[data-value]')].map((c) => c.style.background)")
        assert colours[0] == colours[6] != colours[2]
        await no_sideways_scrolling(tab, width)
        await tab.picture(pictures / f"playground-embeddings-{view}.png")

        await tab.run(
            "document.getElementById('tab-rerank').click(); document.getElementById('rerank').requestSubmit()"
        )
        await tab.until("document.querySelectorAll('#ranked li').length === 4", "the ranking")
        scores = await tab.run("[...document.querySelectorAll('#ranked .score')].map((cell) => +cell.textContent)")
        assert scores == sorted(scores, reverse=True)
        assert "Saturn" in await tab.run("document.querySelector('#ranked li').textContent")
        await no_sideways_scrolling(tab, width)
        await tab.picture(pictures / f"playground-rerank-{view}.png")
        assert own_faults(tab) == []


@VIEW
async def test_reference_renders_offline_in_the_theme_of_the_system(
    server: Server, browser: Browser, pictures: Path, width: int, dark: bool
) -> None:
    async with await browser.open(f"{server.url}/docs", width=width, dark=dark) as tab:
        await tab.until("document.body.innerText.includes('chat/completions')", "the rendered document")
        shades = await tab.run(
            "[document.body, document.querySelector('h1')].map((one, at) => {"
            " const shown = getComputedStyle(one)[at ? 'color' : 'backgroundColor'];"
            " return shown.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + +part, 0) / 3; })"
        )
        ground, heading = shades
        assert (ground < 60, heading > 180) == (dark, dark)
        await tab.picture(pictures / f"docs-{width}-{'dark' if dark else 'light'}.png", whole=False)
        assert own_faults(tab) == []
        await tab.theme(not dark)
        changed = "getComputedStyle(document.body).backgroundColor"
        await tab.until(
            f"document.body.innerText.includes('chat/completions') && {changed} === "
            + json.dumps("rgb(255, 255, 255)" if dark else "rgb(14, 19, 24)"),
            "the other theme",
        )


async def test_wrong_token_is_asked_for_again(server: Server, browser: Browser) -> None:
    async with await browser.open(f"{server.url}/") as tab:
        await sign_in(tab, "not-it")
        await tab.until("document.getElementById('sign-in-fault').textContent !== ''", "the refusal")
        assert await tab.run("document.querySelectorAll('#workers td.name').length") == 0
        await sign_in(tab)
        await tab.until("document.getElementById('live').textContent === 'live'", "the first frame")


async def test_token_stays_in_the_memory_of_the_page(server: Server, browser: Browser) -> None:
    async with await browser.open(f"{server.url}/playground") as tab:
        await sign_in(tab)
        await tab.until("document.getElementById('chat-model').options.length", "the models")
        kept = await tab.run("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, location.href])")
        assert KEY not in kept
        assert KEY not in await tab.run("document.documentElement.outerHTML")
        await tab.go(f"{server.url}/playground")
        await tab.until("!document.getElementById('sign-in').hidden", "the question for a token, again")


async def test_theme_can_be_chosen_against_the_system(server: Server, browser: Browser) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    async with await browser.open(f"{server.url}/playground", dark=True) as tab:
        dark = await tab.run(background)
        await tab.run("document.getElementById('theme').click()")
        light = await tab.run(background)
        await tab.theme(False)
        assert await tab.run(background) == light != dark


async def test_pages_forbid_scripts_and_requests_elsewhere(server: Server, browser: Browser) -> None:
    async with await browser.open(f"{server.url}/playground") as tab:
        await tab.run(
            "window.broken = []; document.addEventListener('securitypolicyviolation', (event) =>"
            " window.broken.push(event.effectiveDirective));"
            "const script = document.createElement('script'); script.textContent = 'window.ran = true';"
            "document.body.append(script); fetch('http://127.0.0.1:9/').catch(() => 0)"
        )
        await tab.until("window.broken.length === 2", "two violations")
        assert await tab.run("window.ran === undefined")
        assert sorted(await tab.run("window.broken")) == ["connect-src", "script-src-elem"]


def test_a_browser_without_a_token_gets_the_page_and_a_client_the_error(server: Server) -> None:
    for accept, kind in (("text/html,*/*;q=0.8", "text/html"), ("*/*", "application/json")):
        request = urllib.request.Request(f"{server.url}/", headers={"accept": accept})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        assert (refused.value.code, refused.value.headers.get_content_type()) == (401, kind)

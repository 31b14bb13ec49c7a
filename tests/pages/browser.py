"""A headless Chromium over its DevTools protocol: enough to open pages, run scripts, and take pictures."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

COMMAND = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_S = 60.0


class Browser:
    """One Chromium process with a profile of its own."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="oasgate-browser-"))
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0

    async def __aenter__(self) -> Browser:
        assert COMMAND is not None, "chromium is not installed"
        self._process = await asyncio.create_subprocess_exec(
            COMMAND,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--remote-debugging-port=0",
            f"--user-data-dir={self._folder}",
            "about:blank",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + PATIENCE_S
        while not (port := self._debugging_port()):
            assert self._process.returncode is None, "chromium ended"
            assert time.monotonic() < end, "chromium does not open its debugging port"
            await asyncio.sleep(0.05)
        self._port = port
        return self

    def _debugging_port(self) -> int:
        """The port that Chromium wrote down, 0 until it has."""
        written = self._folder / "DevToolsActivePort"
        first, newline, _ = written.read_text().partition("\n") if written.exists() else ("", "", "")
        return int(first) if newline else 0

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        # processes that it started write there for a moment longer
        end = time.monotonic() + 5.0
        while self._folder.exists() and time.monotonic() < end:
            shutil.rmtree(self._folder, ignore_errors=True)
            await asyncio.sleep(0.05)

    async def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Tab:
        """A new tab at ``url``, loaded."""
        made = await asyncio.to_thread(self._new)
        tab = Tab(made["webSocketDebuggerUrl"])
        await tab.start()
        await tab.size(width, height)
        await tab.theme(dark)
        await tab.go(url)
        return tab

    def _new(self) -> Any:
        asked = urllib.request.Request(f"http://127.0.0.1:{self._port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as response:
            return json.load(response)


class Tab:
    """One page. ``faults`` gathers whatever its console calls an error or a warning, and uncaught exceptions."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._socket: ClientConnection | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self.faults: list[str] = []

    async def __aenter__(self) -> Tab:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._reader is not None and self._socket is not None
        self._reader.cancel()
        await self._socket.close()

    async def start(self) -> None:
        self._socket = await connect(self._url, max_size=None, proxy=None)
        self._reader = asyncio.create_task(self._read())
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol."""
        assert self._socket is not None
        number = len(self._answers) + 1
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        return await asyncio.wait_for(self._answers[number], PATIENCE_S)

    async def go(self, url: str) -> None:
        """Load a page and wait for its ``load`` event."""
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), PATIENCE_S)

    async def size(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    async def theme(self, dark: bool) -> None:
        """What the system prefers."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def run(self, script: str) -> Any:
        """Value of an expression, awaited if it is a promise."""
        found = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, script: str, what: str = "", limit_s: float = PATIENCE_S) -> Any:
        """Wait until an expression is true and return it."""
        end = time.monotonic() + limit_s
        while not (value := await self.run(script)):
            assert time.monotonic() < end, f"{what or script} did not happen; the page says: {await self.text()}"
            await asyncio.sleep(0.1)
        return value

    async def text(self) -> str:
        return str(await self.run("document.body.innerText"))

    async def picture(self, path: Path, *, whole: bool = True) -> None:
        """The page as PNG: all of it, or what a window shows."""
        await self.call("Page.bringToFront")
        taken = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(taken["data"]))

    async def _read(self) -> None:
        assert self._socket is not None
        async for message in self._socket:
            said = json.loads(message)
            if "id" in said:
                future = self._answers[said["id"]]
                if "error" in said:
                    future.set_exception(AssertionError(said["error"]))
                else:
                    future.set_result(said["result"])
                continue
            self._event(said["method"], said["params"])

    def _event(self, method: str, said: Any) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.faults.append(str(said["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.faults.append(str(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.faults.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")

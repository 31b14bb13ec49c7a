"""A worker process with scripted engines: the real worker, bus and protocol, without a model.

The prompt is the script: ``echo:N`` answers N deltas, ``slow:N`` one delta every 50 ms, ``block:S`` nothing for S
seconds, ``stall:S`` the same after one delta, ``late:S`` like ``block`` at the first publication only; ``die:N`` lets
the first N engines of the process die; ``refuse``, ``crash``, ``vanish`` (the process kills itself) and ``silent`` (no
result) are what their names say. An encoding answers its texts, or N bytes for one text ``bytes:N``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

from engines.adapters.base import EngineDead, EngineLoadError, EngineStatus, Reply, WorkError
from engines.protocol.catalog import ModelEntry, Profile
from engines.protocol.events import EncodeOutput, Tensor, Timing, Usage
from engines.protocol.work import EncodeWork, GenerateWork, Work
from engines.worker.main import options, serve


class ScriptedEngine:
    deaths = 0

    def __init__(self, entry: ModelEntry, profile: Profile) -> None:
        self.entry = entry
        self.running = 0
        self.dead = False

    async def load(self) -> None:
        if delay := os.environ.get("FAKE_LOAD_S"):
            await asyncio.sleep(float(delay))
        if seconds := os.environ.get("FAKE_LOAD_BLOCKS"):
            await asyncio.to_thread(time.sleep, float(seconds))
        if (kind := os.environ.get("FAKE_LOAD_FAILS")) and "MiniLM" in self.entry.name:
            raise EngineLoadError("weights are missing", error_class="FileNotFoundError", permanent=kind == "permanent")

    async def run(self, work: Work, reply: Reply) -> None:
        assert not self.dead, "work was given to a dead engine"
        self.running += 1
        try:
            if isinstance(work, GenerateWork):
                await self.generate(work, reply)
            elif isinstance(work, EncodeWork):
                reply.admitted(prompt_tokens=len(work.items))
                text = "".join(item.text or "" for item in work.items)
                data = bytes(int(text[6:])) if text.startswith("bytes:") else text.encode()
                output = EncodeOutput(dense=Tensor("|u1", (1, len(data)), data), dense_dims=len(data))
                reply.completed(usage=Usage(prompt_tokens=len(work.items)), timing=Timing(), output=output)
        finally:
            self.running -= 1

    async def generate(self, work: GenerateWork, reply: Reply) -> None:
        command, _, argument = (work.prompt or "").partition(":")
        match command:
            case "refuse":
                raise WorkError("context_exceeded", "too long", param="messages", details={"prompt_tokens": 9})
            case "crash":
                raise RuntimeError("scripted")
            case "vanish":
                os.kill(os.getpid(), signal.SIGKILL)
            case "die" if ScriptedEngine.deaths < int(argument):
                ScriptedEngine.deaths += 1
                reply.admitted()
                self.dead = True
                raise EngineDead("the scripted engine died")
            case "late" if work.attempt == 0:
                reply.admitted()
                await asyncio.sleep(float(argument))
            case "silent":
                reply.admitted()
                return
        reply.admitted(prompt_tokens=3)
        if command == "stall":
            reply.delta(text="0 ", tokens=1)
        if command in {"block", "stall"}:
            await asyncio.sleep(float(argument))
        count = int(argument) if command in {"echo", "slow"} else 1
        for index in range(count):
            if command == "slow":
                await asyncio.sleep(0.05)
            reply.delta(text=f"{index} ", tokens=1, finish_reason="stop" if index == count - 1 else None)
        reply.completed(usage=Usage(prompt_tokens=3, completion_tokens=count), timing=Timing(inference_ms=1.0))

    def status(self) -> EngineStatus:
        return EngineStatus(inflight_batches=self.running, memory_bytes=1000)

    async def close(self) -> None:
        return None


if __name__ == "__main__":
    if skew := float(os.environ.get("FAKE_CLOCK_AHEAD_S", "0")):
        real_time = time.time
        time.time = lambda: real_time() + skew
    time.sleep(float(os.environ.get("FAKE_START_S", "0")))
    if "FAKE_CHILD" in os.environ:
        # what an engine may leave behind: a child that ignores the polite signal
        subprocess.Popen(
            [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
        )
    extra: list[str] = []
    for name in ("max-inflight", "memory-budget", "kv-budget"):
        if value := os.environ.get(f"FAKE_{name.replace('-', '_').upper()}"):
            extra += [f"--{name}", value]
    sys.exit(serve(options([*sys.argv[1:], *extra]), ScriptedEngine))

"""Start and end of an ``AsyncLLM``: watched, told of in the log, its faults in the terms of the protocol."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from vllm import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from ..base import EngineDead, EngineLoadError
from . import guard
from .processes import Family
from .stats import Stats

log = logging.getLogger("sie.vllm")

PROGRESS_EVERY = 10.0


async def launched(name: str, arguments: Callable[[], AsyncEngineArgs], stats: Stats, family: Family) -> AsyncLLM:
    """The engine of model ``name``, started. Its processes are in ``family``, also when the start fails.

    Raises:
        EngineLoadError: the model cannot be served.
    """
    guard.start()
    ticker = asyncio.create_task(_tell_progress(name))
    try:
        with family.watch():
            return await asyncio.to_thread(_start, arguments, stats)
    finally:
        ticker.cancel()


async def stopped(llm: AsyncLLM | None, family: Family) -> None:
    """End the processes of an engine; those that do not end by themselves are killed. ``None``: it never started."""
    if llm is not None:
        if llm.output_handler is not None:
            # what follows is no failure of the engine
            llm.output_handler.cancel()
        await asyncio.to_thread(llm.shutdown, 0.5)
    await asyncio.to_thread(family.end)


def dead(name: str) -> EngineDead:
    """What work at an engine meets that has died."""
    return EngineDead(f"the engine of model {name!r} died; it is being started anew")


def _start(arguments: Callable[[], AsyncEngineArgs], stats: Stats) -> AsyncLLM:
    try:
        context = UsageContext.ENGINE_CONTEXT
        return AsyncLLM.from_engine_args(arguments(), usage_context=context, stat_loggers=[stats])
    except EngineLoadError:
        raise
    except Exception as error:
        # these are vLLM's for a model or an option it cannot serve; a process that died may do better next time
        permanent = isinstance(error, ValueError | OSError | NotImplementedError | TypeError)
        message = f"{type(error).__name__}: {error}"
        raise EngineLoadError(message, error_class=type(error).__name__, permanent=permanent) from error


async def _tell_progress(name: str) -> None:
    started = time.monotonic()
    while True:
        await asyncio.sleep(PROGRESS_EVERY)
        log.info("model %s: still loading after %.0f s", name, time.monotonic() - started)

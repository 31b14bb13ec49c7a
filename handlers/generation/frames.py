"""A generation as server-sent events: the writer of a surface, driven by the events of a worker."""

from __future__ import annotations

import logging
from typing import Final, Protocol

import msgspec

from engines.protocol.events import Completed, Delta

from ..errors import Failure, Internal
from .call import Generation

logger = logging.getLogger("oasgate.generation")

DONE: Final = b"data: [DONE]\n\n"
encode: Final = msgspec.json.Encoder().encode


class Writer(Protocol):
    """Turns events into whole frames. Holds the state of one stream and knows nothing of HTTP."""

    def delta(self, event: Delta) -> bytes:
        """Frames for new output of one choice; empty when there is nothing to say."""
        ...

    def complete(self, event: Completed) -> bytes:
        """The last frames of a stream that succeeded, ``[DONE]`` included.

        Raises:
            Failure: a choice was never finished.
        """
        ...

    def fail(self, failure: Failure) -> bytes:
        """The last frames of a stream that did not succeed, ``[DONE]`` included."""
        ...


class EventFrames:
    """An asynchronous iterator of frames. Closing it cancels the work, even before the first frame was asked for."""

    def __init__(self, generation: Generation, writer: Writer) -> None:
        self._generation = generation
        self._writer = writer
        self._ended = False

    def __aiter__(self) -> EventFrames:
        return self

    async def __anext__(self) -> bytes:
        while not self._ended:
            frames = await self._next()
            if frames:
                return frames
        raise StopAsyncIteration

    async def _next(self) -> bytes:
        try:
            event = await anext(self._generation)
            if isinstance(event, Delta):
                return self._writer.delta(event)
            frames = self._writer.complete(event)
        except Failure as failure:
            frames = self._writer.fail(failure)
        except Exception:
            logger.exception("a stream failed")
            frames = self._writer.fail(Internal())
        await self.aclose()
        return frames

    async def aclose(self) -> None:
        """End the stream and the work behind it."""
        self._ended = True
        await self._generation.aclose()


def frame(payload: object) -> bytes:
    """One event with ``payload`` as JSON."""
    return b"data: " + encode(payload) + b"\n\n"

"""A generation as a whole: the events of a worker gathered into choices."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field

from engines.protocol.events import Completed, Delta, TokenLogprob
from generated.sie import models

from .call import Generation
from .stream_errors import unfinished
from .tool_calls import call_id, call_name


@dataclass(slots=True)
class Choice:
    """One finished choice. ``calls`` are its tool calls by index."""

    text: list[str] = field(default_factory=list)
    tokens: list[TokenLogprob] = field(default_factory=list)
    calls: dict[int, models.ChatCompletionToolCall] = field(default_factory=dict)
    finish_reason: str | None = None

    def add(self, event: Delta) -> None:
        """Take the next delta of this choice."""
        self.text.append(event.text)
        if event.logprobs and (event.text or not event.reasoning):
            self.tokens += event.logprobs
        for call in event.tool_calls:
            known = self.calls.get(call.index)
            if known is None:
                function = models.ChatCompletionToolCallFunction(name=call_name(call), arguments=call.arguments)
                self.calls[call.index] = models.ChatCompletionToolCall(
                    id=call_id(call), type="function", function=function
                )
            else:
                known.function.arguments += call.arguments
        if event.finish_reason is not None:
            self.finish_reason = event.finish_reason


@dataclass(frozen=True, slots=True)
class Collected:
    """All choices in index order, the worker's last event."""

    choices: list[Choice]
    completed: Completed


async def collect(generation: Generation) -> Collected:
    """Gather all events. The work is cancelled when the caller is.

    Raises:
        Failure: the work failed, or a choice was never finished.
    """
    found = [Choice() for _ in range(generation.choices)]
    async with aclosing(generation):
        async for event in generation:
            if isinstance(event, Delta):
                found[event.choice].add(event)
                continue
            if any(choice.finish_reason is None for choice in found):
                raise unfinished()
            return Collected(found, event)
    raise unfinished()

"""Answers of this contract: the first contract's, with what this one has more."""

from __future__ import annotations

from typing import Any

import msgspec

from engines.protocol.events import Completed, Delta, GenerateOutput, PromptToken, Timing
from generated.inflection import models

from ..generation.chat import chat_response
from ..generation.chat_stream import ChatWriter
from ..generation.collect import Collected
from ..generation.identity import Identity
from ..generation.logprobs import finite


def response(
    who: Identity, collected: Collected, *, logprobs_asked: bool, role: str, echo: str
) -> models.ChatCompletionResponse:
    """The whole answer; each choice begins with ``echo``."""
    if echo:
        for choice in collected.choices:
            choice.text.insert(0, echo)
    same = msgspec.to_builtins(chat_response(who, collected, logprobs_asked=logprobs_asked))
    for choice in same["choices"]:
        choice["message"]["role"] = role
    completed = collected.completed
    whole = msgspec.convert(same, models.ChatCompletionResponse)
    whole.usage.prompt_tokens_details = models.PromptTokensDetails(cached_tokens=completed.usage.cached_tokens)
    whole.prompt_logprobs = _prompt_logprobs(completed)
    whole.kv_transfer_params = None
    whole.time_info = time_info(completed.timing, who.created)
    return whole


def _prompt_logprobs(completed: Completed) -> list[dict[str, models.PromptLogprob] | None] | None:
    if not isinstance(completed.output, GenerateOutput):
        return None
    return [None if place is None else _place(place) for place in completed.output.prompt_logprobs]


def _place(tokens: list[PromptToken]) -> dict[str, Any]:
    return {
        str(one.id): models.PromptLogprob(logprob=finite(one.logprob), rank=one.rank, decoded_token=one.token)
        for one in tokens
    }


def time_info(timing: Timing, created: int) -> models.TimeInfo:
    """The worker's clock in seconds."""
    first = min(timing.ttft_ms, timing.total_ms)
    return models.TimeInfo(
        queue_time=timing.queue_ms / 1e3,
        prompt_time=first / 1e3,
        completion_time=(timing.total_ms - first) / 1e3,
        total_time=(timing.queue_ms + timing.total_ms) / 1e3,
        created=created,
    )


class EchoWriter(ChatWriter):
    """Chunks whose choices begin with the message that they continue."""

    def __init__(self, identity: Identity, choices: int, *, usage: bool, role: str, echo: str) -> None:
        super().__init__(identity, choices, usage=usage, role=role)
        self._echo = dict.fromkeys(range(choices), echo)

    def delta(self, event: Delta) -> bytes:
        if echo := self._echo.pop(event.choice, ""):
            event.text = echo + event.text
        return super().delta(event)

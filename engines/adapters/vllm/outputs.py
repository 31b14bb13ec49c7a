"""From vLLM's outputs of one choice to the deltas of the protocol."""

from __future__ import annotations

import secrets
import time
from typing import Any

from vllm.outputs import CompletionOutput

from ...protocol.events import FinishReason, TokenLogprob, ToolCallDelta
from ..base import Reply, WorkError
from .logprobs import Alignment, Vocabulary, entries, named_by_id
from .thinking import Thinking
from .toolcalls import CallPart, ToolCalls

SIGN_OF_LIFE_S = 1.0
"""Seconds after which a choice that holds its text back says that it goes on: its caller counts the silence."""
FINISH: dict[str, FinishReason] = {"length": "length", "abort": "cancelled"}


class Choice:
    """One choice: takes its text apart and sends what is certain."""

    def __init__(
        self,
        index: int,
        reply: Reply,
        *,
        thinking: Thinking | None = None,
        tool_calls: ToolCalls | None = None,
        vocabulary: Vocabulary | None = None,
        top: int | None = None,
        as_ids: bool = False,
        shows_special_tokens: bool = False,
    ) -> None:
        self._index = index
        self._reply = reply
        self._thinking = thinking
        self._tool_calls = tool_calls
        self._vocabulary = vocabulary
        self._top = top
        self._as_ids = as_ids
        self._shows_special_tokens = shows_special_tokens
        self._alignment = Alignment()
        self._raw = 0
        self._answer_at = 0 if thinking is None else None
        self._said = 0
        self._calls = 0
        self._tokens = 0
        self._sent_at = time.monotonic()

    def take(self, output: CompletionOutput) -> None:
        """Send what one output of the engine adds.

        Raises:
            WorkError: the engine gave this choice up.
        """
        last = output.finish_reason is not None
        if output.finish_reason == "error":
            raise WorkError("inference_error", "the engine failed while generating")
        thought, text, parts = self._apart(output.text, last)
        logprobs = self._logprobs(output, last)
        self._tokens += len(output.token_ids)
        calls = [self._call(part) for part in parts]
        now = time.monotonic()
        if not (thought or text or calls or logprobs or last) and now - self._sent_at < SIGN_OF_LIFE_S:
            return  # nothing is certain yet; its tokens are counted with the next delta
        self._sent_at = now
        self._reply.delta(
            choice=self._index,
            text=text,
            reasoning=thought,
            tokens=self._tokens,
            logprobs=logprobs,
            tool_calls=calls or None,
            finish_reason=self._finish(output.finish_reason) if last else None,
        )
        self._tokens = 0

    def _apart(self, text: str, last: bool) -> tuple[str, str, list[CallPart]]:
        """Thought, answer and parts of calls. Counts in bytes where the answer stands in the generated text."""
        thought, parts = "", list[CallPart]()
        self._raw += len(text.encode())
        if self._thinking is not None:
            thought, text = self._thinking.feed(text)
            if last:
                more, rest = self._thinking.finish()
                thought, text = thought + more, text + rest
            if self._answer_at is None and text:
                self._answer_at = self._raw - len(text.encode())
        if self._tool_calls is None:
            self._said += len(text.encode())
            return thought, text, parts
        text, parts = self._tool_calls.feed(text)
        if last:
            rest, more_parts = self._tool_calls.finish()
            text, parts = text + rest, parts + more_parts
        self._said = self._tool_calls.leading
        return thought, text, parts

    def _logprobs(self, output: CompletionOutput, last: bool) -> list[TokenLogprob] | None:
        """Log probabilities of the answer that is sent now, up to its first tool call."""
        if self._top is None or self._vocabulary is None:
            return None
        found: list[Any] = entries(self._vocabulary, output.logprobs or (), output.token_ids, self._top)
        if self._as_ids:
            named_by_id(output.token_ids, output.logprobs or (), found, self._top)
        for token, entry in zip(output.token_ids, found, strict=True):
            self._alignment.add(entry, shown=self._shows_special_tokens or self._vocabulary.token(token)[2])
        if self._answer_at is None:
            return []
        return self._alignment.release(self._answer_at, self._answer_at + self._said, last=last)

    def _call(self, part: CallPart) -> ToolCallDelta:
        if part.name is None:
            return ToolCallDelta(index=self._calls - 1, arguments=part.arguments)
        self._calls += 1
        return ToolCallDelta(
            index=self._calls - 1, id=f"call_{secrets.token_hex(12)}", name=part.name, arguments=part.arguments
        )

    def _finish(self, reason: str | None) -> FinishReason:
        if self._calls and reason != "abort":
            return "tool_calls"
        return FINISH.get(reason or "", "stop")

"""Chat chunks: a state machine from events to frames, without HTTP (contract B.9).

A choice begins with its role, goes on with text and tool calls, and ends with one chunk that has its finish reason.
"""

from __future__ import annotations

from engines.protocol.events import Completed, Delta, TokenLogprob, ToolCallDelta, Usage

from ..errors import Failure
from . import logprobs
from .finish import chat_reason
from .frames import DONE, encode
from .identity import Identity
from .stream_errors import stream_error, unfinished
from .tool_calls import call_id, call_name


class ChoiceState:
    """What has been said of one choice, and the bytes around its deltas."""

    __slots__ = ("calls", "closed", "prefix", "started")

    def __init__(self, head: bytes, index: int) -> None:
        self.started = False
        self.closed = False
        self.calls: set[int] = set()
        self.prefix = b'%s,"choices":[{"index":%d,"delta":{' % (head, index)


class ChatWriter:
    """Writes the chunks of one chat stream with ``choices`` choices; ``usage`` asks for the chunk with the counts."""

    def __init__(self, identity: Identity, choices: int = 1, *, usage: bool = False, role: str = "assistant") -> None:
        self._head = chunk_head(identity, "chat.completion.chunk")
        self._choices = [ChoiceState(self._head, index) for index in range(choices)]
        self._usage = usage
        self._role = b'"role":' + encode(role)

    def delta(self, event: Delta) -> bytes:
        """Text first, then tool calls, then the end of the choice; logprobs ride on the first chunk of the delta."""
        state = self._choices[event.choice]
        if event.text and state.started and not event.logprobs and not event.tool_calls and not event.finish_reason:
            return b'%s"content":%s%s' % (state.prefix, encode(event.text), _OPEN)
        return self._whole(state, event)

    def complete(self, event: Completed) -> bytes:
        if not all(state.closed for state in self._choices):
            raise unfinished()
        return (self._counts(event.usage) + DONE) if self._usage else DONE

    def fail(self, failure: Failure) -> bytes:
        choice = b',"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":null}]'
        return b'%s%s,"error":%s}\n\n%s' % (self._head, choice, encode(stream_error(failure)), DONE)

    def _whole(self, state: ChoiceState, event: Delta) -> bytes:
        tokens = event.logprobs if event.text or not event.reasoning else []
        role = b"" if state.started else self._role
        state.started = True
        chunks: list[bytes] = []
        if event.text or role or tokens:
            content = b'"content":' + encode(event.text) if event.text else b""
            chunks.append(_chunk(state, b",".join(part for part in (role, content) if part), tokens))
        for call in event.tool_calls:
            chunks += self._call(state, call)
        if event.finish_reason is not None and not state.closed:
            state.closed = True
            reason = chat_reason(event.finish_reason, called=bool(state.calls))
            chunks.append(_chunk(state, b"", None, reason))
        return b"".join(chunks)

    def _call(self, state: ChoiceState, call: ToolCallDelta) -> list[bytes]:
        chunks = []
        if call.index not in state.calls:
            state.calls.add(call.index)
            announced = b'"tool_calls":[{"index":%d,"id":%s,"type":"function","function":{"name":%s,"arguments":""}}]'
            said = announced % (call.index, encode(call_id(call)), encode(call_name(call)))
            chunks.append(_chunk(state, said, None))
        if call.arguments:
            said = b'"tool_calls":[{"index":%d,"function":{"arguments":%s}}]' % (call.index, encode(call.arguments))
            chunks.append(_chunk(state, said, None))
        return chunks

    def _counts(self, usage: Usage) -> bytes:
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        return b'%s,"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}\n\n' % (
            self._head,
            prompt,
            completion,
            prompt + completion,
        )


_OPEN = b'},"logprobs":null,"finish_reason":null}]}\n\n'


def chunk_head(identity: Identity, kind: str) -> bytes:
    """The frame of a chunk up to its choices."""
    known = {
        "id": identity.id,
        "object": kind,
        "created": identity.created,
        "model": identity.model,
        "system_fingerprint": identity.fingerprint,
    }
    return b"data: " + encode(known)[:-1]


def _chunk(state: ChoiceState, delta: bytes, tokens: list[TokenLogprob] | None, reason: str | None = None) -> bytes:
    if not tokens and reason is None:
        return state.prefix + delta + _OPEN
    said = encode(logprobs.of_choice(tokens)) if tokens else b"null"
    return b'%s%s},"logprobs":%s,"finish_reason":%s}]}\n\n' % (state.prefix, delta, said, encode(reason))

"""The writers of completions and of native generate, without HTTP."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generated.sie import models
from handlers.errors import Failure
from handlers.generation.completion_stream import CompletionWriter
from handlers.generation.generate_stream import GenerateWriter
from handlers.generation.identity import Identity

from .conftest import events
from .fakes import completed, delta, token

WHO = Identity("cmpl-1", 1700000000, "org/chat", "fp_0123456789abcdef")
TEXT = msgspec.json.Decoder(models.CompletionsChunk)
NATIVE = msgspec.json.Decoder(models.GenerateChunk)
PIECES = st.lists(st.text(max_size=10), max_size=10)


def native() -> GenerateWriter:
    """A writer whose first chunk comes 1.5 s after submission."""
    return GenerateWriter("rid", 10.0, lambda: 11.5)


@settings(max_examples=200)
@given(PIECES)
def test_completion_chunks_add_up(pieces: list[str]) -> None:
    writer = CompletionWriter(WHO)
    parts = [writer.delta(delta(piece)) for piece in pieces]
    parts += [writer.delta(delta(finish_reason="length")), writer.complete(completed())]
    *chunks, done = [payload for part in parts if part for payload in events(part)]
    assert done == "[DONE]"
    for chunk in chunks:
        TEXT.decode(json.dumps(chunk))
        assert chunk["object"] == "text_completion"
        assert set(chunk["choices"][0]) == {"text", "index", "finish_reason"}
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "".join(pieces)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert chunks[-1]["choices"][0]["text"] == ""


def test_a_completion_stream_that_fails() -> None:
    writer = CompletionWriter(WHO)
    writer.delta(delta("a"))
    told, done = events(writer.fail(Failure(504, "inter_chunk_timeout", "slow")))
    TEXT.decode(json.dumps(told))
    assert told["choices"] == [{"text": "", "index": 0, "finish_reason": None}]
    assert told["error"]["code"] == "inter_chunk_timeout"
    assert done == "[DONE]"
    with pytest.raises(Failure):
        writer.complete(completed())


@settings(max_examples=200)
@given(PIECES)
def test_native_chunks_add_up(pieces: list[str]) -> None:
    writer = native()
    parts = [writer.delta(delta(piece)) for piece in pieces]
    parts += [writer.delta(delta(finish_reason="length")), writer.complete(completed(4, 5))]
    *chunks, last, done = [payload for part in parts if part for payload in events(part)]
    assert done == "[DONE]"
    for chunk in (*chunks, last):
        NATIVE.decode(json.dumps(chunk))
        assert chunk["request_id"] == "rid"
        assert None not in chunk.values()
    assert [chunk["seq"] for chunk in (*chunks, last)] == list(range(len(chunks) + 1))
    assert [chunk["done"] for chunk in (*chunks, last)] == [False] * len(chunks) + [True]
    assert "".join(chunk["text_delta"] for chunk in chunks) == "".join(pieces)
    assert [chunk.get("ttft_ms") for chunk in chunks] == [1500.0][: len(chunks)] + [None] * (len(chunks) - 1)
    assert (last["text_delta"], last["finish_reason"]) == ("", "length")
    assert last["usage"] == {"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9}


def test_native_logprobs_are_a_bare_array() -> None:
    (chunk,) = events(native().delta(delta("a", logprobs=[token("a", float("-inf"))])))
    assert chunk["logprobs"] == [{"token": "a", "logprob": -9999.0, "bytes": [97], "top_logprobs": []}]


@pytest.mark.parametrize("count", [0, 2])
def test_a_native_stream_that_fails_goes_on_counting(count: int) -> None:
    writer = native()
    for _ in range(count):
        writer.delta(delta("a"))
    told, done = events(writer.fail(Failure(500, "inference_error", "boom")))
    NATIVE.decode(json.dumps(told))
    assert done == "[DONE]"
    assert (told["seq"], told["done"], told["finish_reason"]) == (count, True, "error")
    assert told["error"] == {"code": "inference_error", "message": "boom"}

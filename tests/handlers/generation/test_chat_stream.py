"""The chat writer without HTTP: order of chunks, whole frames, and equality with the whole answer however it is cut."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.protocol.events import Delta, TokenLogprob, ToolCallDelta
from generated.sie import models
from handlers.errors import Failure
from handlers.generation.chat_stream import ChatWriter
from handlers.generation.collect import Choice
from handlers.generation.identity import Identity

from .conftest import events
from .fakes import completed, delta, token

WHO = Identity("chatcmpl-1", 1700000000, "org/chat", "fp_0123456789abcdef")
CHUNK = msgspec.json.Decoder(models.ChatCompletionChunk)


def write(deltas: list[Delta], choices: int = 1, *, usage: bool = False) -> list[Any]:
    """Payloads of a whole stream. Every call returns whole frames, each a chunk of the document."""
    writer = ChatWriter(WHO, choices, usage=usage)
    parts = [*(writer.delta(event) for event in deltas), writer.complete(completed(4, 5))]
    payloads = [payload for part in parts if part for payload in events(part)]
    assert payloads.pop() == "[DONE]"
    for payload in payloads:
        CHUNK.decode(json.dumps(payload))
        assert {key: payload[key] for key in ("id", "object", "created", "model", "system_fingerprint")} == {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1700000000,
            "model": "org/chat",
            "system_fingerprint": "fp_0123456789abcdef",
        }
    return payloads


def join(payloads: list[Any], index: int = 0) -> dict[str, Any]:
    """What an OpenAI client makes of the chunks of one choice, strings concatenated."""
    said: dict[str, Any] = {"role": "", "content": "", "calls": {}, "tokens": [], "reasons": []}
    for payload in payloads:
        for choice in payload["choices"]:
            if choice["index"] != index:
                continue
            piece = choice["delta"]
            said["role"] += piece.get("role", "")
            said["content"] += piece.get("content", "")
            said["tokens"] += (choice["logprobs"] or {"content": []})["content"]
            assert "finish_reason" in choice
            if choice["finish_reason"] is not None:
                said["reasons"].append(choice["finish_reason"])
            for call in piece.get("tool_calls", []):
                into = said["calls"].setdefault(call["index"], {"id": "", "type": "", "name": "", "arguments": ""})
                for key in ("id", "type"):
                    into[key] += call.get(key, "")
                into["name"] += call["function"].get("name", "")
                into["arguments"] += call["function"]["arguments"]
    return said


def test_the_least_stream() -> None:
    first, second, last = (choice["choices"][0] for choice in write([delta("Hel"), delta("lo", finish_reason="stop")]))
    assert first["delta"] == {"role": "assistant", "content": "Hel"}
    assert second["delta"] == {"content": "lo"}
    assert last == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}


def test_a_first_delta_without_text_has_the_role_alone() -> None:
    payloads = write([delta(reasoning="hm"), delta("a", finish_reason="length")])
    assert [payload["choices"][0]["delta"] for payload in payloads] == [{"role": "assistant"}, {"content": "a"}, {}]


def test_an_answer_without_text_has_role_and_end() -> None:
    assert [p["choices"][0]["delta"] for p in write([delta(finish_reason="stop")])] == [{"role": "assistant"}, {}]


def test_reasoning_stays_out() -> None:
    tokens = [token("secret")]
    payloads = write([delta(reasoning="secret", logprobs=tokens), delta("said", finish_reason="stop")])
    assert "secret" not in json.dumps(payloads)


def test_a_tool_call_is_announced_once_then_only_has_arguments() -> None:
    call = ToolCallDelta(index=0, id="call_a", name="look")
    more = ToolCallDelta(index=0, arguments='{"a":')
    payloads = write([delta(tool_calls=[call]), delta(tool_calls=[more]), delta(finish_reason="stop")])
    deltas = [payload["choices"][0]["delta"] for payload in payloads]
    announced = {"index": 0, "id": "call_a", "type": "function", "function": {"name": "look", "arguments": ""}}
    assert deltas == [
        {"role": "assistant"},
        {"tool_calls": [announced]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
        {},
    ]
    assert payloads[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_call_without_an_id_gets_one() -> None:
    said = join(write([delta(tool_calls=[ToolCallDelta(index=0, name="f")], finish_reason="length")]))
    assert said["calls"][0]["id"].startswith("call_")
    assert len(said["calls"][0]["id"]) == 5 + 24
    assert said["reasons"] == ["tool_calls"]


def test_logprobs_ride_with_their_text() -> None:
    payloads = write([delta("a", logprobs=[token("a", -0.1, token("b", -2.0))]), delta("b", finish_reason="stop")])
    first = payloads[0]["choices"][0]
    assert first["delta"]["content"] == "a"
    top = {"token": "b", "logprob": -2.0, "bytes": [98]}
    told = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": [top]}
    assert first["logprobs"] == {"content": [told], "refusal": None}
    assert payloads[1]["choices"][0]["logprobs"] is None


def test_logprobs_of_held_back_text_come_at_once() -> None:
    payloads = write([delta("a"), delta(logprobs=[token("b")]), delta("bc", finish_reason="stop")])
    assert payloads[1]["choices"][0]["delta"] == {}
    assert payloads[1]["choices"][0]["logprobs"]["content"][0]["token"] == "b"


def test_choices_keep_apart() -> None:
    payloads = write(
        [
            delta("a", choice=1),
            delta("x", choice=0),
            delta("b", choice=1, finish_reason="length"),
            delta("y", choice=0, finish_reason="stop"),
        ],
        choices=2,
    )
    assert all(len(payload["choices"]) == 1 for payload in payloads)
    for index, text, reason in ((0, "xy", "stop"), (1, "ab", "length")):
        said = join(payloads, index)
        assert (said["role"], said["content"], said["reasons"]) == ("assistant", text, [reason])


def test_counts_come_only_when_asked_for() -> None:
    deltas = [delta("a", finish_reason="stop")]
    assert all("usage" not in payload for payload in write(deltas))
    *others, last = write(deltas, usage=True)
    assert all("usage" not in payload for payload in others)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9}


def test_work_that_ends_with_an_open_choice_is_a_fault() -> None:
    writer = ChatWriter(WHO, 2)
    writer.delta(delta("a", finish_reason="stop"))
    with pytest.raises(Failure, match="finished"):
        writer.complete(completed())


@pytest.mark.parametrize("before", [[], [delta("a")], [delta("a", finish_reason="stop")]])
def test_a_fault_is_one_event_and_the_end(before: list[Delta]) -> None:
    writer = ChatWriter(WHO, usage=True)
    for event in before:
        writer.delta(event)
    told, done = events(writer.fail(Failure(503, "transport_failure", 'worker "w" is gone')))
    assert done == "[DONE]"
    CHUNK.decode(json.dumps(told))
    assert told["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}]
    error = {"message": 'worker "w" is gone', "type": "server_error", "param": None, "code": "transport_failure"}
    assert told["error"] == error


text = st.text(max_size=12)
pieces = st.lists(
    st.fixed_dictionaries(
        {"text": text, "token": st.booleans(), "calls": st.lists(st.tuples(st.integers(0, 2), text), max_size=2)}
    ),
    max_size=8,
)


def scripted(parts: list[dict[str, Any]]) -> list[Delta]:
    """Deltas whose tool calls begin with id and name; the last one ends the choice."""
    begun: set[int] = set()
    deltas = []
    for part in parts:
        calls = []
        for index, arguments in part["calls"]:
            first = index not in begun
            begun.add(index)
            calls.append(
                ToolCallDelta(
                    index=index,
                    id=f"call_{index}" if first else None,
                    name=f"tool {index}" if first else None,
                    arguments=arguments,
                )
            )
        tokens: list[TokenLogprob] | None = [token(part["text"])] if part["token"] else None
        deltas.append(delta(part["text"], logprobs=tokens, tool_calls=calls))
    return [*deltas, delta(finish_reason="stop")]


@settings(max_examples=300)
@given(pieces)
def test_the_joined_stream_is_the_whole_answer(parts: list[dict[str, Any]]) -> None:
    """However the worker cuts its output, role, text, logprobs and calls add up to the blocking answer."""
    whole = Choice()
    for event in scripted(parts):
        whole.add(event)
    said = join(write(scripted(parts)))
    assert said["role"] == "assistant"
    assert said["content"] == "".join(whole.text)
    assert [one["token"] for one in said["tokens"]] == [one.token for one in whole.tokens]
    assert len(said["reasons"]) == 1
    assert said["calls"] == {
        index: {"id": call.id, "type": "function", "name": call.function.name, "arguments": call.function.arguments}
        for index, call in whole.calls.items()
    }

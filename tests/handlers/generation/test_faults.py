"""How servers like this fail their users: each fault by its number, on the real routes."""

from __future__ import annotations

import asyncio
import json
import logging
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from engines.protocol.events import AnyEvent, ToolCallDelta
from generated.sie import models
from handlers.generation.chat_stream import ChatWriter
from handlers.generation.frames import EventFrames
from handlers.http.context import RequestContext
from tests.handlers.scripted import failed

from .conftest import Client
from .fakes import completed, delta, token

CHAT = "/v1/chat/completions"


def context() -> Any:
    """A request's context, for handlers that are called without HTTP."""
    return RequestContext(None, {})


def calls(payloads: list[Any]) -> list[Any]:
    return [
        call
        for payload in payloads
        if payload != "[DONE]"
        for choice in payload["choices"]
        for call in choice["delta"].get("tool_calls", [])
    ]


async def test_01_empty_arguments_are_a_string(client: Client) -> None:
    client.dispatcher.script = lambda _: [
        delta(tool_calls=[ToolCallDelta(index=0, id="call_a", name="f")]),
        delta(finish_reason="stop"),
        completed(),
    ]
    assert [call["function"]["arguments"] for call in calls(await client.chunks())] == [""]
    (choice,) = (await client.chat()).json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == ""


@pytest.mark.parametrize("cuts", [[], [5], [1, 3, 8], list(range(1, 12))])
async def test_02_calls_do_not_depend_on_how_they_were_cut(client: Client, cuts: list[int]) -> None:
    text = '{"city": "é"}'
    edges = [0, *cuts, len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    first, *others = pieces
    client.dispatcher.script = lambda _: [
        delta(tool_calls=[ToolCallDelta(index=0, id="call_a", name="f", arguments=first)]),
        *(delta(tool_calls=[ToolCallDelta(index=0, arguments=piece)]) for piece in others),
        delta(finish_reason="stop"),
        completed(),
    ]
    assert "".join(call["function"]["arguments"] for call in calls(await client.chunks())) == text
    (choice,) = (await client.chat()).json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == text


async def test_03_the_first_delta_of_a_call_has_id_type_and_name_and_no_other_does(client: Client) -> None:
    client.dispatcher.script = lambda _: [
        delta("x", tool_calls=[ToolCallDelta(index=0, id="call_a", name="f", arguments="{")]),
        delta(tool_calls=[ToolCallDelta(index=0, arguments="}")], finish_reason="stop"),
        completed(),
    ]
    first, *others = calls(await client.chunks())
    assert (first["id"], first["type"], first["function"]["name"]) == ("call_a", "function", "f")
    assert others
    assert all(set(call) == {"index", "function"} and set(call["function"]) == {"arguments"} for call in others)


async def test_04_parallel_calls_keep_apart(client: Client) -> None:
    client.dispatcher.script = lambda _: [
        delta(
            tool_calls=[
                ToolCallDelta(index=0, id="call_a", name="f", arguments="{}"),
                ToolCallDelta(index=1, id="call_b", name="f", arguments="[]"),
            ],
            finish_reason="stop",
        ),
        completed(),
    ]
    said: dict[int, str] = {}
    for call in calls(await client.chunks()):
        said[call["index"]] = said.get(call["index"], "") + call["function"]["arguments"]
    assert said == {0: "{}", 1: "[]"}


@pytest.mark.parametrize("n", [1, 3])
async def test_05_06_finish_reason_is_null_until_the_end_of_each_choice(client: Client, n: int) -> None:
    *chunks, done = await client.chunks(n=n)
    assert done == "[DONE]"
    for index in range(n):
        mine = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert [choice["finish_reason"] for choice in mine] == [None, None, "stop"]
        assert [choice["delta"].get("role") for choice in mine] == ["assistant", None, None]
        assert "".join(choice["delta"].get("content", "") for choice in mine) == "Hello"


@pytest.mark.parametrize(
    ("options", "asked"),
    [(None, False), ({}, False), ({"include_usage": False}, False), ({"include_usage": True}, True)],
)
async def test_07_counts_come_last_and_only_when_asked_for(client: Client, options: Any, asked: bool) -> None:
    *chunks, done = await client.chunks(stream_options=options)
    counted = [chunk for chunk in chunks if "usage" in chunk]
    assert counted == ([chunks[-1]] if asked else [])
    assert all(chunk["choices"] == [] for chunk in counted)
    assert done == "[DONE]"


async def test_08_stop_strings_reach_the_worker_whole(client: Client) -> None:
    """The worker holds back what could begin one (``tests/engines``); nothing here cuts or trims them."""
    await client.chunks(stop=["\n\nUser:", " "])
    assert client.work.sampling.stop == ("\n\nUser:", " ")


async def test_09_whole_characters_in_whole_events(client: Client) -> None:
    pieces = ["👩‍👩‍👧", "é\u0301", '"\\\n\u2028\x00', "\n\ndata: [DONE]\n\n"]
    client.dispatcher.script = lambda _: [
        *(delta(piece) for piece in pieces),
        delta(finish_reason="stop"),
        completed(),
    ]
    *chunks, done = await client.chunks()
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "".join(pieces)
    assert done == "[DONE]"


async def test_10_a_fault_is_told_then_the_stream_ends(client: Client) -> None:
    client.dispatcher.script = lambda _: [delta("a"), failed("inference_error", "CUDA is gone")]
    first, told, done = await client.chunks()
    assert "error" not in first
    assert told["error"] == {
        "message": "CUDA is gone",
        "type": "server_error",
        "param": None,
        "code": "inference_error",
    }
    assert done == "[DONE]"


@pytest.mark.parametrize("events", [[], [delta("a")], [delta("a", finish_reason="stop")], [completed()]])
async def test_10_a_worker_that_falls_silent_is_a_fault_too(client: Client, events: list[AnyEvent]) -> None:
    client.dispatcher.script = lambda _: events
    *_, told, done = await client.chunks()
    assert told["error"]["type"] == "server_error"
    assert done == "[DONE]"
    assert (await client.chat()).status_code in {500, 504}


async def test_10_a_choice_that_nobody_asked_for_is_a_fault(client: Client) -> None:
    client.dispatcher.script = lambda _: [delta("a"), delta("b", choice=7), completed()]
    *_, told, done = await client.chunks()
    assert (told["error"]["code"], done) == ("malformed_worker_response", "[DONE]")
    response = await client.chat()
    assert (response.status_code, response.json()["error"]["code"]) == (500, "malformed_worker_response")


async def test_10_a_fault_of_ours_is_told_without_its_inside(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise KeyError("secret of the inside")

    monkeypatch.setattr(ChatWriter, "delta", broken)
    told, done = await client.chunks()
    assert (told["error"]["code"], done) == ("inference_error", "[DONE]")
    assert "secret" not in told["error"]["message"]
    assert client.dispatcher.answers[0].closed


@pytest.mark.parametrize("reason", ["error", "cancelled"])
async def test_10_a_choice_that_ends_in_error_is_a_fault(client: Client, reason: Any) -> None:
    client.dispatcher.script = lambda _: [delta("a", finish_reason=reason), completed()]
    *_, told, _ = await client.chunks()
    assert told["error"]["code"] == {"error": "inference_error", "cancelled": "cancelled"}[reason]
    assert (await client.chat()).status_code == {"error": 500, "cancelled": 408}[reason]


async def test_11_only_whole_events_are_written(client: Client) -> None:
    """Each message of the stream is whole events, so that a fault cannot land inside one."""
    client.dispatcher.script = lambda _: [
        delta("a", tool_calls=[ToolCallDelta(index=0, id="c", name="f", arguments="{}")]),
        failed("transport_failure"),
    ]
    body = msgspec.convert(
        {"model": "org/chat", "messages": [{"role": "user", "content": "x"}]}, models.ChatCompletionRequest
    )
    body.stream = True
    frames = await client.inference.proxy_chat(context(), body)
    assert isinstance(frames, EventFrames)
    parts = [part async for part in frames]
    assert len(parts) == 2
    assert all(part.startswith(b"data: ") and part.endswith(b"\n\n") for part in parts)


async def test_12_the_cost_of_a_delta_does_not_grow(client: Client) -> None:
    """A frame is made of its delta alone: the thousandth has the bytes of the first."""
    client.dispatcher.script = lambda _: [*(delta("ab") for _ in range(1000)), delta(finish_reason="stop"), completed()]
    _, *chunks, _, _ = await client.chunks()
    assert len({json.dumps(chunk) for chunk in chunks}) == 1


async def test_13_a_client_that_leaves_a_blocking_request_ends_the_work(client: Client) -> None:
    for hold in (0, 1, 2):  # before admission, before the first chunk, before the second
        client.dispatcher.hold = hold
        client.dispatcher.script = lambda _: [delta("a"), delta("b", finish_reason="stop"), completed()]
        body = msgspec.convert(
            {"model": "org/chat", "messages": [{"role": "user", "content": "x"}]}, models.ChatCompletionRequest
        )
        task = asyncio.ensure_future(client.inference.proxy_chat(context(), body))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.dispatcher.answers[-1].closed


async def test_13_a_client_that_leaves_a_stream_ends_the_work(client: Client) -> None:
    body = msgspec.convert(
        {"model": "org/chat", "messages": [{"role": "user", "content": "x"}], "stream": True},
        models.ChatCompletionRequest,
    )
    for taken in (0, 1):  # even before the first frame was asked for
        frames = await client.inference.proxy_chat(context(), body)
        assert isinstance(frames, EventFrames)
        for _ in range(taken):
            await anext(frames)
        assert not client.dispatcher.answers[-1].closed
        await frames.aclose()
        assert client.dispatcher.answers[-1].closed
        assert [frame async for frame in frames] == []


@pytest.mark.parametrize("value", [3_000_000_000, 1e18, 10**30, 12.5])
async def test_16_huge_limits_never_reach_the_engine(client: Client, value: float) -> None:
    response = await client.chat(max_tokens=value)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "max_tokens")
    assert client.dispatcher.works == []


async def test_16_a_whole_number_with_a_point_is_one(client: Client) -> None:
    await client.chat(max_tokens=12.0)
    assert client.work.sampling.max_tokens == 12


async def test_17_null_is_absent_on_every_optional_field(client: Client) -> None:
    optional = [name for name in models.ChatCompletionRequest.__struct_fields__ if name not in {"model", "messages"}]
    response = await client.chat(**dict.fromkeys(optional))
    assert response.status_code == 200, response.text
    await client.chat()
    with_nulls, without = client.dispatcher.works
    assert msgspec.structs.replace(with_nulls, request_id="") == msgspec.structs.replace(without, request_id="")


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"null", b"", b"{", b"\xff", b"[" * 100_000])
async def test_18_what_is_no_request_is_refused_in_the_envelope(client: Client, body: bytes) -> None:
    for path in (CHAT, "/v1/completions", "/v1/responses", "/v1/generate/org__chat"):
        response = await client.post(path, content=body, headers={"content-type": "application/json"})
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "invalid_request"


async def test_19_unknown_fields_are_refused_by_name(client: Client) -> None:
    response = await client.chat(min_p=0.1)
    assert response.json()["error"]["code"] == "unsupported_field"
    assert response.json()["error"]["param"] == "min_p"


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), float("inf")])
async def test_20_logprobs_are_finite(client: Client, value: float) -> None:
    client.dispatcher.script = lambda _: [
        delta("a", logprobs=[token("a", value, token("b", value))], finish_reason="stop"),
        completed(),
    ]
    (choice,) = (await client.chat(logprobs=True, top_logprobs=1)).json()["choices"]
    (told,) = choice["logprobs"]["content"]
    assert told["logprob"] == told["top_logprobs"][0]["logprob"] == -9999.0
    streamed = (await client.chunks(logprobs=True, top_logprobs=1))[0]
    assert streamed["choices"][0]["logprobs"]["content"] == [told]


async def test_21_a_prompt_that_is_too_long_says_so_with_both_numbers(client: Client) -> None:
    client.dispatcher.admit = False
    client.dispatcher.script = lambda _: [failed("context_exceeded", "9000 tokens, 8192 fit", param="messages")]
    for stream in (False, True):
        response = await client.chat(stream=stream)
        error = response.json()["error"]
        assert response.status_code == 400
        assert (error["type"], error["code"]) == ("context_length_exceeded", "context_exceeded")
        assert error["param"] is None  # contract A.4
        assert error["message"] == "9000 tokens, 8192 fit"


async def test_21_a_default_gives_way_and_an_explicit_limit_does_not(client: Client) -> None:
    await client.chat()
    await client.chat(max_tokens=1024)
    assert [work.sampling.max_tokens_is_default for work in client.dispatcher.works] == [True, False]


async def test_22_23_the_templates_own_words_reach_the_client(client: Client) -> None:
    client.dispatcher.admit = False
    client.dispatcher.script = lambda _: [failed("invalid_request", "System role not supported", param="messages")]
    response = await client.chat()
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
    assert "System role not supported" in response.json()["error"]["message"]


SECRET = "alice-4711@example.org"


@pytest.mark.parametrize(
    ("path", "field"), [(CHAT, "user"), (CHAT, "safety_identifier"), ("/v1/generate/org__chat", "safety_identifier")]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_sensitive_fields_are_dropped(
    client: Client, caplog: pytest.LogCaptureFixture, path: str, field: str, stream: bool
) -> None:
    """Neither the work item nor any log has them, whatever becomes of the request."""
    caplog.set_level(logging.DEBUG)
    least: dict[str, Any] = {"model": "org/chat", "messages": [{"role": "user", "content": "hi"}]}
    if path != CHAT:
        least = {"prompt": "hi", "max_new_tokens": 8}
    request = {**least, field: SECRET, "stream": stream}
    for more in ({}, {"temperature": -1}, {"unheard_of": 1}, {field: [SECRET]}):
        response = await client.post(path, json={**request, **more})
        assert SECRET not in response.text
    assert len(client.dispatcher.works) == 1
    assert SECRET.encode() not in msgspec.msgpack.encode(client.work)
    assert SECRET not in caplog.text

"""Whole answers and streams of the four operations on their real routes."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from engines.protocol.cluster import DispatchError, Timeouts
from engines.protocol.events import ToolCallDelta
from generated.sie import models
from handlers.settings import Settings
from tests.handlers.scripted import failed

from .conftest import Client, configure
from .fakes import completed, delta, token

CHAT = "/v1/chat/completions"
LEAST: dict[str, dict[str, Any]] = {
    CHAT: {"model": "org/chat", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"model": "org/chat", "prompt": "hi"},
    "/v1/responses": {"model": "org/chat", "input": "hi"},
    "/v1/generate/org__chat": {"prompt": "hi", "max_new_tokens": 8},
}
ALL = list(LEAST)
SHORT: dict[str, dict[str, Any]] = {
    CHAT: {"max_tokens": 16},
    "/v1/completions": {"max_tokens": 16},
    "/v1/responses": {"max_output_tokens": 16},
}
STREAMING = [path for path in ALL if path != "/v1/responses"]


async def test_chat(client: Client) -> None:
    response = await client.chat()
    body = msgspec.json.decode(response.content, type=models.ChatCompletionResponse)
    assert body.id == f"chatcmpl-{response.headers['x-sie-request-id']}"
    assert (body.object, body.model) == ("chat.completion", "org/chat")
    (choice,) = response.json()["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello"},
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert response.json()["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    assert re.fullmatch(r"fp_[0-9a-f]{16}", str(body.system_fingerprint))


async def test_the_fingerprint_is_that_of_model_and_profile(client: Client) -> None:
    first, again, other = [
        (await client.chat(model=name)).json()["system_fingerprint"]
        for name in ("org/chat", "ORG/chat", "org/chat:warm")
    ]
    assert first == again != other


async def test_several_choices(client: Client) -> None:
    body = (await client.chat(n=3)).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert body["usage"] == {"prompt_tokens": 7, "completion_tokens": 6, "total_tokens": 13}


async def test_logprobs_of_a_whole_answer(client: Client) -> None:
    body = (await client.chat(logprobs=True)).json()
    told = {"token": "Hello", "logprob": -0.5, "bytes": [72, 101, 108, 108, 111], "top_logprobs": []}
    assert body["choices"][0]["logprobs"] == {"content": [told], "refusal": None}


@pytest.mark.parametrize(("native", "told"), [("stop", "stop"), ("length", "length"), ("tool_calls", "tool_calls")])
async def test_finish_reasons(client: Client, native: Any, told: str) -> None:
    client.dispatcher.script = lambda _: [delta("x", finish_reason=native), completed()]
    assert (await client.chat()).json()["choices"][0]["finish_reason"] == told
    body = (await client.post("/v1/completions", json=LEAST["/v1/completions"])).json()
    assert body["choices"][0]["finish_reason"] == ("length" if native == "length" else "stop")
    body = (await client.post("/v1/generate/org__chat", json=LEAST["/v1/generate/org__chat"])).json()
    assert body["finish_reason"] == native


async def test_completions(client: Client) -> None:
    response = await client.post("/v1/completions", json=LEAST["/v1/completions"])
    body = response.json()
    msgspec.json.decode(response.content, type=models.CompletionsResponse)
    assert body["id"] == f"cmpl-{response.headers['x-sie-request-id']}"
    assert body["object"] == "text_completion"
    assert body["choices"] == [{"text": "Hello", "index": 0, "finish_reason": "stop"}]


async def test_responses(client: Client) -> None:
    request = {**LEAST["/v1/responses"], "temperature": 0, "max_output_tokens": 9}
    response = await client.post("/v1/responses", json=request)
    body, rid = response.json(), response.headers["x-sie-request-id"]
    msgspec.json.decode(response.content, type=models.ResponsesResponse)
    assert (body["id"], body["object"], body["status"]) == (f"resp-{rid}", "response", "completed")
    (item,) = body["output"]
    assert (item["type"], item["id"], item["role"], item["status"]) == (
        "message",
        f"msg-{rid}",
        "assistant",
        "completed",
    )
    assert item["content"] == [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}]
    assert (body["temperature"], body["top_p"], body["max_output_tokens"]) == (0, 1, 9)
    usage = {key: body["usage"][key] for key in ("input_tokens", "output_tokens", "total_tokens")}
    assert usage == {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}


async def test_responses_tell_the_profiles_own_sampling(client: Client) -> None:
    body = (await client.post("/v1/responses", json={"model": "org/chat:warm", "input": "hi"})).json()
    assert (body["temperature"], body["max_output_tokens"]) == (0.6, 16)


async def test_generate(client: Client) -> None:
    response = await client.post("/v1/generate/org__chat", json=LEAST["/v1/generate/org__chat"])
    assert response.json() == {
        "model": "org/chat",
        "text": "Hello",
        "finish_reason": "stop",
        "attempt_id": "attempt-1",
        "ttft_ms": 2.0,
        "tpot_ms": 4.0,
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
    }


async def test_a_single_token_has_no_pace(client: Client) -> None:
    client.dispatcher.script = lambda _: [delta("x", finish_reason="length"), completed(7, 1)]
    body = (await client.post("/v1/generate/org__chat", json=LEAST["/v1/generate/org__chat"])).json()
    assert "tpot_ms" not in body


@pytest.mark.parametrize("path", ALL)
async def test_headers_of_a_whole_answer(client: Client, path: str) -> None:
    client.dispatcher.script = lambda _: [
        delta("x", finish_reason="stop"),
        completed(bundle_config_hash="ab" * 32, execution_identity="cd" * 32),
    ]
    headers = (await client.post(path, json=LEAST[path])).headers
    assert headers["x-request-id"] == headers["x-sie-request-id"]
    assert headers["x-sie-worker"] == f"queue:{headers['x-sie-request-id']}"
    assert (headers["x-queue-publish-time"], headers["x-queue-time"], headers["x-inference-time"]) == (
        "0.5",
        "1.2",
        "3.0",
    )
    assert headers["x-tokenization-time"] == "0.5"
    assert re.fullmatch(r"\d+\.\d", headers["x-queue-wait-time"])
    assert headers["x-sie-model-revision"] == "ab" * 32
    assert headers["x-sie-execution-identity-sha256"] == "cd" * 32
    assert headers["x-sie-version"] == headers["x-sie-server-version"] == "0.6.26"
    # nothing was fetched and nothing was done afterwards
    assert "x-payload-fetch-time" not in headers
    assert "x-postprocessing-time" not in headers


async def test_headers_that_were_not_reported_are_absent(client: Client) -> None:
    headers = (await client.chat()).headers
    assert "x-sie-model-revision" not in headers
    assert "x-sie-execution-identity-sha256" not in headers


@pytest.mark.parametrize("path", STREAMING)
async def test_headers_of_a_stream(client: Client, path: str) -> None:
    response = await client.post(path, json={**LEAST[path], "stream": True})
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-sie-request-id"]
    assert "x-inference-time" not in response.headers


async def test_streams(client: Client) -> None:
    *chunks, last, done = await client.chunks()
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == "Hello"
    assert last["choices"][0]["finish_reason"] == "stop"
    *chunks, last, done = await client.chunks("/v1/completions")
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Hello"
    assert all(chunk["id"].startswith("cmpl-") for chunk in chunks)
    *chunks, last, done = await client.chunks("/v1/generate/org__chat")
    assert "".join(chunk["text_delta"] for chunk in chunks) == "Hello"
    assert last["done"] is True


async def test_tool_calls_of_a_whole_answer(client: Client) -> None:
    first = ToolCallDelta(index=1, id="call_b", name="g", arguments="{}")
    second = ToolCallDelta(index=0, id="call_a", name="f", arguments='{"a":')
    client.dispatcher.script = lambda _: [
        delta(tool_calls=[first, second]),
        delta(tool_calls=[ToolCallDelta(index=0, arguments="1}")], finish_reason="length"),
        completed(),
    ]
    tools = [{"type": "function", "function": {"name": name}} for name in "fg"]
    (choice,) = (await client.chat(tools=tools)).json()["choices"]
    assert choice["message"]["content"] == ""
    assert choice["message"]["tool_calls"] == [
        {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "call_b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    assert choice["finish_reason"] == "tool_calls"


FAULTS = [
    ("invalid_request", 400, "invalid_request_error", "invalid_request"),
    ("unsupported_field", 400, "invalid_request_error", "unsupported_field"),
    ("unknown_lora_adapter", 400, "invalid_request_error", "unknown_lora_adapter"),
    ("context_exceeded", 400, "context_length_exceeded", "context_exceeded"),
    ("INVALID_INPUT", 400, "invalid_request_error", "invalid_request"),
    ("PAYLOAD_TOO_LARGE", 413, "invalid_request_error", "invalid_request"),
    ("RESOURCE_EXHAUSTED", 503, "server_error", "RESOURCE_EXHAUSTED"),
    ("MODEL_LOADING", 503, "server_error", "MODEL_LOADING"),
    ("LORA_LOADING", 503, "server_error", "LORA_LOADING"),
    ("MODEL_LOAD_FAILED", 502, "server_error", "MODEL_LOAD_FAILED"),
    ("cancelled", 408, "server_error", "cancelled"),
    ("transport_failure", 503, "server_error", "transport_failure"),
    ("malformed_worker_response", 500, "server_error", "malformed_worker_response"),
    ("first_chunk_timeout", 504, "server_error", "first_chunk_timeout"),
    ("inter_chunk_timeout", 504, "server_error", "inter_chunk_timeout"),
    ("overall_timeout", 504, "server_error", "overall_timeout"),
    ("inference_error", 500, "server_error", "inference_error"),
]


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize(("fault", "status", "type", "code"), FAULTS)
async def test_a_fault_before_admission_is_a_status(
    client: Client, path: str, fault: str, status: int, type: str, code: str
) -> None:
    client.dispatcher.admit = False
    client.dispatcher.script = lambda _: [failed(fault)]
    for stream in (False, True) if path in STREAMING else (False,):
        response = await client.post(path, json={**LEAST[path], **({"stream": True} if stream else {})})
        assert response.status_code == status, response.text
        error = response.json()["error"]
        assert (error["type"], error["code"]) == (type, code)
        assert response.headers["x-sie-request-id"]
        assert client.dispatcher.answers.pop().closed


NAMES = [
    ("/v1/responses", "prompt", "input"),
    ("/v1/responses", "messages", "input"),
    ("/v1/generate/org__chat", "messages", "prompt"),
    ("/v1/generate/org__chat", "min_tokens", "options.default_sampling.min_new_tokens"),
    (CHAT, "min_tokens", "min_tokens"),
]


@pytest.mark.parametrize("admit", [False, True])
@pytest.mark.parametrize(("path", "of_the_work", "of_the_caller"), NAMES)
async def test_a_worker_s_refusal_has_the_caller_s_name_of_the_field(
    client: Client, path: str, of_the_work: str, of_the_caller: str, admit: bool
) -> None:
    client.dispatcher.admit = admit
    client.dispatcher.script = lambda _: [failed("invalid_request", param=of_the_work)]
    response = await client.post(path, json=LEAST[path])
    assert (response.status_code, response.json()["error"]["param"]) == (400, of_the_caller)


@pytest.mark.parametrize("path", STREAMING)
@pytest.mark.parametrize(("fault", "status", "type", "code"), FAULTS)
async def test_a_fault_after_admission_is_in_the_stream(
    client: Client, path: str, fault: str, status: int, type: str, code: str
) -> None:
    client.dispatcher.script = lambda _: [delta("a"), failed(fault, "why")]
    *before, told, done = await client.chunks(path)
    assert len(before) == 1
    assert done == "[DONE]"
    assert (told["error"]["code"], told["error"]["message"]) == (code, "why")
    if path != "/v1/generate/org__chat":
        assert told["error"]["type"] == type
    assert client.dispatcher.answers[0].closed


@pytest.mark.parametrize("path", ALL)
async def test_a_fault_after_admission_of_a_whole_answer_is_a_status(client: Client, path: str) -> None:
    client.dispatcher.script = lambda _: [delta("a"), failed("overall_timeout")]
    response = await client.post(path, json=LEAST[path])
    assert (response.status_code, response.json()["error"]["code"]) == (504, "overall_timeout")


@pytest.mark.parametrize(
    ("error", "code", "wait"),
    [
        (DispatchError("provisioning", "none", retry_after=60), "provisioning", "60"),
        (DispatchError("backpressure", "full", retry_after=5), "transport_failure", "5"),
        (DispatchError("queue_unavailable", "off"), "transport_failure", None),
    ],
)
async def test_work_that_is_not_taken(client: Client, error: DispatchError, code: str, wait: str | None) -> None:
    client.dispatcher.error = error
    response = await client.chat(stream=True)
    assert (response.status_code, response.json()["error"]["code"]) == (503, code)
    assert response.headers.get("retry-after") == wait


async def test_a_model_that_takes_long_to_load_is_worth_a_retry(client: Client) -> None:
    client.dispatcher.admit = False
    client.dispatcher.script = lambda _: [failed("overall_timeout")]
    client.cluster.state = "loading"
    response = await client.chat()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "MODEL_LOADING")
    assert response.headers["retry-after"] == "5"


async def test_a_machine_profile_that_is_not_configured(client: Client) -> None:
    configure(client, Settings(gpu_types=("l4", "a100-spot"), gpu_aliases={"Small": "l4"}))
    for asked, found in (("L4", "l4"), ("small", "l4"), ("a100", "a100-spot")):
        await client.post(CHAT, json=LEAST[CHAT], headers={"X-SIE-MACHINE-PROFILE": asked})
        assert client.dispatcher.routes[-1].machine_profile == found
    response = await client.post(CHAT, json=LEAST[CHAT], headers={"X-SIE-MACHINE-PROFILE": "h100"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (503, "transport_failure", "X-SIE-MACHINE-PROFILE")
    assert "retry-after" not in response.headers


async def test_a_conflicting_bundle_of_generate_lists_those_that_fit(client: Client) -> None:
    for bundle in ("poor:%2F", "poor:/"):
        response = await client.post(f"/v1/generate/{bundle}org__chat", json=LEAST["/v1/generate/org__chat"])
        assert response.status_code == 409
        detail = response.json()["detail"]
        assert (detail["code"], detail["compatible_bundles"]) == ("BUNDLE_ROUTING_CONFLICT", ["default", "other"])


@pytest.mark.parametrize(
    ("settings", "model", "options", "expected"),
    [
        (Settings(), "org__chat", {}, Timeouts(30.0, 30.0, 10.0)),
        (Settings(), "org__chat:warm", {}, Timeouts(77.0, 30.0, 10.0)),
        (Settings(), "org__chat", {"overall_timeout_s": 5}, Timeouts(5.0, 5.0, 10.0)),
        (
            Settings(),
            "org__chat:warm",
            {"overall_timeout_s": 50, "first_chunk_timeout_s": 4, "inter_chunk_timeout_s": 3},
            Timeouts(50.0, 4.0, 3.0),
        ),
        (
            Settings(overall_timeout=9.0, first_chunk_timeout=2.0, inter_chunk_timeout=1.0),
            "org__chat",
            {"overall_timeout_s": 50, "first_chunk_timeout_s": 4, "inter_chunk_timeout_s": 3},
            Timeouts(9.0, 2.0, 1.0),
        ),
    ],
)
async def test_time_limits(
    client: Client, settings: Settings, model: str, options: dict[str, Any], expected: Timeouts
) -> None:
    configure(client, settings)
    request = {"prompt": "hi", "max_new_tokens": 8, "options": options}
    assert (await client.post(f"/v1/generate/{model}", json=request)).status_code == 200
    assert client.dispatcher.timeouts == [expected]


async def test_time_limits_of_chat(client: Client) -> None:
    """1024 tokens by default: 132 s. One piece has no first chunk and no gaps."""
    await client.chat()
    await client.chat(stream=True)
    await client.chat(max_tokens=4096, stream=True)
    assert client.dispatcher.timeouts == [
        Timeouts(132.0),
        Timeouts(132.0, 30.0, 10.0),
        Timeouts(300.0, 30.0, 10.0),
    ]


async def test_limits_of_the_operator_hold_for_whole_answers(client: Client) -> None:
    configure(client, Settings(inter_chunk_timeout=2.0))
    await client.chat()
    await client.chat(best_of=2)
    assert [work.stream for work in client.dispatcher.works] == [True, False]
    assert client.dispatcher.timeouts == [Timeouts(132.0, 30.0, 2.0), Timeouts(132.0)]


@pytest.mark.parametrize(
    ("profile", "first", "inter"), [("prompt", 4.0, 10.0), ("steady", 30.0, 3.0)], ids=["first chunk", "between chunks"]
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses"])
async def test_limits_of_the_profile_hold_for_whole_answers(
    client: Client, path: str, profile: str, first: float, inter: float
) -> None:
    response = await client.post(path, json={**LEAST[path], "model": f"org/chat:{profile}", **SHORT[path]})
    assert response.status_code == 200
    assert "Hello" in response.text
    assert client.work.stream
    assert client.dispatcher.timeouts == [Timeouts(31.0, first, inter)]


async def test_best_of_has_no_chunks_to_limit(client: Client) -> None:
    await client.chat(model="org/chat:steady", best_of=2)
    assert not client.work.stream
    assert client.dispatcher.timeouts == [Timeouts(132.0)]


async def test_the_operator_goes_before_the_profile_in_whole_answers(client: Client) -> None:
    configure(client, Settings(inter_chunk_timeout=2.0))
    await client.chat(model="org/chat:steady")
    assert client.dispatcher.timeouts == [Timeouts(132.0, 30.0, 2.0)]


async def test_the_default_limit_of_tokens_can_be_set(client: Client) -> None:
    configure(client, Settings(default_max_tokens=50))
    await client.chat()
    assert client.work.sampling.max_tokens == 50


async def test_the_default_limit_of_tokens_is_within_the_models_own(client: Client) -> None:
    configure(client, Settings(default_max_tokens=50_000))
    await client.chat()
    assert client.work.sampling.max_tokens == 4096


async def test_trace_context_travels(client: Client) -> None:
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
    await client.post(CHAT, json=LEAST[CHAT], headers=trace)
    assert {"traceparent": client.work.traceparent, "tracestate": client.work.tracestate} == trace


async def test_alternatives_of_a_stream(client: Client) -> None:
    client.dispatcher.script = lambda _: [
        delta("a", logprobs=[token("a", -0.1, token("a", -0.1), token("b", -3.0))], finish_reason="stop"),
        completed(),
    ]
    first = (await client.chunks(logprobs=True, top_logprobs=2))[0]
    (told,) = first["choices"][0]["logprobs"]["content"]
    assert [other["token"] for other in told["top_logprobs"]] == ["a", "b"]
    (native, *_) = await client.chunks("/v1/generate/org__chat", logprobs=True, top_logprobs=2)
    assert native["logprobs"] == [told]

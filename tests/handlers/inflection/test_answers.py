"""Answers: what this contract has more than the first, and how it tells faults."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engines.protocol.cluster import DispatchError
from engines.protocol.events import AnyEvent, GenerateOutput, PromptToken
from engines.protocol.work import GenerateWork
from generated.inflection import models
from handlers.inflection import Options, read
from handlers.settings import SettingError, Settings
from tests.handlers.generation import fakes
from tests.handlers.scripted import failed

from .conftest import OWN, Client, make

SAID = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "It is "}]


async def test_an_answer_has_all_its_members(client: Client) -> None:
    body = (await client.chat(n=2)).json()
    answer = msgspec.convert(body, models.ChatCompletionResponse)
    assert [choice.message.content for choice in answer.choices] == ["Hello", "Hello"]
    assert answer.usage.total_tokens == 11
    assert isinstance(answer.system_fingerprint, str) and answer.system_fingerprint.startswith("fp_")
    assert body["prompt_logprobs"] is None
    assert body["kv_transfer_params"] is None
    time = body["time_info"]
    assert time == {
        "queue_time": 0.00125,
        "prompt_time": 0.002,
        "completion_time": 0.004,
        "total_time": 0.00725,
        "created": body["created"],
    }


async def test_the_callers_request_id_is_in_work_and_answer(client: Client) -> None:
    response = await client.chat(request_id="mine:1")
    assert response.json()["id"] == "chatcmpl-mine:1"
    assert response.headers["x-request-id"] == "mine:1"
    assert client.work.request_id.startswith("mine:1-")
    chunks = await client.chunks(request_id="mine:1")
    assert {chunk["id"] for chunk in chunks[:-1]} == {"chatcmpl-mine:1"}
    first, second = client.dispatcher.works
    assert first.request_id != second.request_id


@pytest.mark.parametrize(("operator", "overall"), [(None, 2.5), (1.0, 1.0), (60.0, 2.5)])
async def test_timeout_sec_limits_the_whole(operator: float | None, overall: float) -> None:
    async with make(settings=Settings(overall_timeout=operator)) as client:
        await client.chat(timeout_sec=2.5)
        await client.chunks(timeout_sec=2.5)
        whole, stream = client.dispatcher.timeouts
    assert whole.overall == stream.overall == overall
    assert stream.first_chunk == overall


async def test_prompt_logprobs_are_told_by_token_id(client: Client) -> None:
    places = [None, [PromptToken(5, "a", -0.5, 1), PromptToken(6, "b", float("-inf"), 2)]]

    def script(work: GenerateWork) -> list[AnyEvent]:
        output = GenerateOutput(prompt_logprobs=places)
        return [fakes.delta("x", finish_reason="stop"), fakes.completed(output=output)]

    client.dispatcher.script = script
    body = (await client.chat(prompt_logprobs=1)).json()
    assert body["prompt_logprobs"] == [
        None,
        {
            "5": {"logprob": -0.5, "rank": 1, "decoded_token": "a"},
            "6": {"logprob": -9999.0, "rank": 2, "decoded_token": "b"},
        },
    ]


async def test_echo_begins_with_the_message_that_is_continued(client: Client) -> None:
    more: dict[str, Any] = {"messages": SAID, "continue_final_message": True, "n": 2}
    body = (await client.chat(echo=True, **more)).json()
    assert [choice["message"]["content"] for choice in body["choices"]] == ["It is Hello"] * 2
    chunks = await client.chunks(echo=True, **more)
    for index in (0, 1):
        deltas = [c["choices"][0]["delta"] for c in chunks[:-1] if c["choices"][0]["index"] == index]
        assert "".join(delta.get("content", "") for delta in deltas) == "It is Hello"
    assert (await client.chat(**more)).json()["choices"][0]["message"]["content"] == "Hello"


async def test_echo_of_another_role_changes_nothing(client: Client) -> None:
    assert (await client.chat(echo=True)).json()["choices"][0]["message"]["content"] == "Hello"


async def test_without_a_generation_prompt_the_role_is_that_of_the_last_message(client: Client) -> None:
    body = (await client.chat(add_generation_prompt=False, echo=True)).json()
    assert body["choices"][0]["message"] == {"role": "user", "content": "hiHello"}
    first = (await client.chunks(add_generation_prompt=False))[0]
    assert first["choices"][0]["delta"]["role"] == "user"


async def test_a_stream_counts_where_it_is_asked_to(client: Client) -> None:
    *_, usage, done = await client.chunks(stream_options={"include_usage": True})
    assert usage["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    assert done == "[DONE]"


async def test_templates_of_callers_are_off_by_default() -> None:
    async with make(Options(default_model="org/chat")) as client:
        response = await client.chat(chat_template="{{ messages }}")
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["body", "chat_template"]


async def test_without_a_default_model_one_must_be_named() -> None:
    async with make(Options()) as client:  # two models of the catalog generate
        refused, served = await client.chat(), await client.chat(model="org/chat")
    assert (refused.status_code, served.status_code) == (422, 200)
    assert refused.json()["detail"][0]["loc"] == ["body", "model"]


async def test_failures_of_the_worker_keep_their_status(client: Client) -> None:
    client.dispatcher.admit = False
    client.dispatcher.script = lambda work: [failed("invalid_request", "no", param="allowed_token_ids")]
    response = await client.chat()
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["body", "allowed_token_ids"]
    client.dispatcher.script = lambda work: [failed("overall_timeout", "late")]
    response = await client.chat()
    assert (response.status_code, response.json()) == (504, {"detail": "late", "code": "overall_timeout"})
    client.dispatcher.error = DispatchError("backpressure", "full")
    response = await client.chat()
    assert (response.status_code, response.json()["detail"]) == (503, "full")
    assert response.headers["retry-after"] == "5"


async def test_failures_within_a_stream_are_a_chunk(client: Client) -> None:
    client.dispatcher.script = lambda work: [fakes.delta("x"), failed("inference_error", "broken")]
    *_, last, done = await client.chunks()
    assert last["error"]["message"] == "broken"
    assert done == "[DONE]"


async def test_faults_outside_of_operations_and_tokens_use_the_envelope() -> None:
    async with make(OWN, Settings(auth_mode="token", auth_tokens=("secret",))) as client:
        refused = await client.chat()
        known = {"authorization": "Bearer secret"}
        lost = await client.get("/v1/nothing", headers=known)
        wrong = await client.get("/v1/chat/completions", headers=known)
        broken = await client.post("/v1/chat/completions", content=b"{", headers=known)
    for response, status in ((refused, 401), (lost, 404), (wrong, 405)):
        assert response.status_code == status
        assert isinstance(msgspec.convert(response.json(), models.ErrorResponse).detail, str)
    assert refused.headers["www-authenticate"] == "Bearer"
    assert broken.status_code == 422
    assert broken.json()["detail"][0]["loc"] == ["body"]


@pytest.mark.parametrize(
    ("value", "prefix"), [("", "/inflection"), ("/v2/other/", "/v2/other"), ("None", None), ("x_1-y", "/x_1-y")]
)
def test_the_prefix_is_configurable(value: str, prefix: str | None) -> None:
    assert read({"SIE_INFLECTION_PREFIX": value}).prefix == prefix


@pytest.mark.parametrize("name", ["SIE_INFLECTION_PREFIX", "SIE_ALLOW_CHAT_TEMPLATE"])
def test_malformed_options_refuse_to_start(name: str) -> None:
    with pytest.raises(SettingError, match=name):
        read({name: "a b"})

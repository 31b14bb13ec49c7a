"""POST /v1/embeddings."""

from __future__ import annotations

import asyncio

import numpy as np
import pybase64
import pytest

from engines.protocol.cluster import DispatchError
from engines.protocol.events import Completed, EncodeOutput, ItemError, Output, ScoreOutput, Tensor
from tests.handlers.scripted import failed

from . import fakes
from .conftest import Client

PATH = "/v1/embeddings"


async def test_floats_come_in_input_order_with_usage(client: Client) -> None:
    response = await client.post(PATH, json={"model": "ORG/embed", "input": ["long text", "b", "middle"]})
    body = response.json()
    assert body["object"] == "list"
    assert body["model"] == "ORG/embed"  # as sent
    assert body["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert [entry["index"] for entry in body["data"]] == [0, 1, 2]
    assert [entry["object"] for entry in body["data"]] == ["embedding"] * 3
    assert [entry["embedding"][0] for entry in body["data"]] == [9.0, 1.0, 6.0]
    assert response.headers["content-type"] == "application/json"


async def test_floats_are_the_shortest_text_of_float32(client: Client) -> None:
    response = await client.post(PATH, json={"model": "org/embed", "input": "a"})
    assert b'"embedding":[1.0,0.1,-1.0,0.1]' in response.content  # 0.1 and not 0.10000000149011612


async def test_base64_holds_the_same_float32(client: Client) -> None:
    request = {"model": "org/embed", "input": ["a", "three"]}
    floats = (await client.post(PATH, json=request)).json()["data"]
    texts = (await client.post(PATH, json=request | {"encoding_format": "base64"})).json()["data"]
    for one, other in zip(floats, texts, strict=True):
        decoded = np.frombuffer(pybase64.b64decode(other["embedding"], validate=True), "<f4")
        assert decoded.tobytes() == np.array(one["embedding"], "<f4").tobytes()


async def test_float16_vectors_of_a_profile_are_sent_as_float32(client: Client) -> None:
    client.dispatcher.script = lambda work: EncodeOutput(dense=fakes.tensor([[0.5, 0.25]], "<f2"), dense_dims=2)
    response = await client.post(PATH, json={"model": "org/embed", "input": "a", "encoding_format": "base64"})
    assert np.frombuffer(pybase64.b64decode(response.json()["data"][0]["embedding"]), "<f4").tolist() == [0.5, 0.25]


async def test_the_work_asks_for_dense_float32_of_each_text(client: Client) -> None:
    await client.post(
        PATH,
        json={"model": "other:/org/embed:small", "input": ["a", "b"]},
        headers={"traceparent": "00-1-2-01", "x-request-id": "mine"},
    )
    [work] = client.dispatcher.works
    assert work.model == "org/embed"
    assert (work.profile, work.bundle, work.pool) == ("small", "other", "default")
    assert work.output_types == ("dense",)
    assert work.output_dtype == "float32"  # although the profile says int8
    assert [item.text for item in work.items] == ["a", "b"]
    assert work.traceparent == "00-1-2-01"
    assert client.dispatcher.timeouts[0].overall == 120.0


async def test_success_headers(client: Client) -> None:
    headers = (await client.post(PATH, json={"model": "org/embed", "input": "a"})).headers
    assert headers["x-sie-worker"] == f"queue:{headers['x-sie-request-id']}"
    assert headers["x-queue-publish-time"] == "0.5"
    assert headers["x-queue-time"] == "1.2"
    assert headers["x-inference-time"] == "3.0"
    assert headers["x-tokenization-time"] == "0.5"
    assert "x-postprocessing-time" not in headers
    assert headers["x-sie-model-revision"] == "ab" * 32
    assert headers["x-sie-execution-identity-sha256"] == "cd" * 32


async def test_usage_is_estimated_when_the_worker_counts_none(client: Client) -> None:
    def uncounted(work: object) -> Completed:
        return fakes.completed(fakes.honest(work), prompt_tokens=0)  # type: ignore[arg-type]

    client.dispatcher.script = uncounted
    response = await client.post(PATH, json={"model": "org/embed", "input": ["x" * 41, "é"]})
    assert response.json()["usage"]["prompt_tokens"] == 10
    response = await client.post(PATH, json={"model": "org/embed", "input": [""]})
    assert response.json()["usage"]["prompt_tokens"] == 1


OUTPUTS: dict[str, Output | None] = {
    "nothing": None,
    "no vectors": EncodeOutput(),
    "another result": ScoreOutput(scores=[1.0, 2.0], kind="logit"),
    "too few vectors": EncodeOutput(dense=fakes.tensor([[1, 2]]), dense_dims=2),
    "too many vectors": EncodeOutput(dense=fakes.tensor([[1, 2]] * 3), dense_dims=2),
    "vectors without width": EncodeOutput(dense=fakes.tensor(np.zeros((2, 0)))),
    "one long vector": EncodeOutput(dense=fakes.tensor([1, 2]), dense_dims=2),
    "whole numbers": EncodeOutput(dense=fakes.tensor([[1], [2]], "|i1"), dense_dims=1),
    "a number that is not finite": EncodeOutput(dense=fakes.tensor([[1, np.nan]] * 2), dense_dims=2),
    "bytes that do not fit": EncodeOutput(dense=Tensor("<f4", (2, 2), b"\0" * 4), dense_dims=2),
    "one of two failed": EncodeOutput(
        dense=fakes.tensor([[1, 2]] * 2), dense_dims=2, errors={1: ItemError("INVALID_INPUT", "too long")}
    ),
}


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS.keys())
async def test_never_a_partial_answer(client: Client, output: Output | None, encoding_format: str) -> None:
    client.dispatcher.script = lambda work: fakes.completed(output)
    response = await client.post(
        PATH, json={"model": "org/embed", "input": ["a", "b"], "encoding_format": encoding_format}
    )
    assert response.status_code == 500
    error = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("server_error", "transport_failure", None)


@pytest.mark.parametrize(
    ("code", "status", "type_", "told"),
    [
        ("INVALID_INPUT", 400, "invalid_request_error", "invalid_request"),
        ("PAYLOAD_TOO_LARGE", 413, "invalid_request_error", "payload_too_large"),
        ("RESOURCE_EXHAUSTED", 503, "server_error", "transport_failure"),
        ("MODEL_LOADING", 503, "server_error", "transport_failure"),
        ("MODEL_LOAD_FAILED", 502, "server_error", "transport_failure"),
        ("transport_failure", 503, "server_error", "transport_failure"),
        ("overall_timeout", 504, "server_error", "overall_timeout"),
        ("inference_error", 500, "server_error", "transport_failure"),
    ],
)
async def test_a_failed_work_item_is_told_in_openai_terms(
    client: Client, code: str, status: int, type_: str, told: str
) -> None:
    client.dispatcher.script = lambda work: failed(code)
    response = await client.post(PATH, json={"model": "org/embed", "input": "a"})
    assert response.status_code == status
    error = response.json()["error"]
    assert (error["type"], error["code"], error["message"]) == (type_, told, "it went wrong")
    assert client.dispatcher.answers[0].closed


async def test_no_worker_yet_is_told_with_retry_after(client: Client) -> None:
    client.dispatcher.error = DispatchError("provisioning", "No worker available", 60)
    response = await client.post(PATH, json={"model": "org/embed", "input": "a"})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "60"
    assert int(response.headers["retry-after-ms"]) <= 5000  # the OpenAI SDKs would sleep the minute in silence
    assert response.headers["x-sie-error-code"] == "PROVISIONING"
    assert response.json()["error"]["code"] == "provisioning"


async def test_an_answer_without_end_is_a_timeout_of_the_gateway(client: Client) -> None:
    client.dispatcher.cut = True
    response = await client.post(PATH, json={"model": "org/embed", "input": "a"})
    assert response.status_code == 504


async def test_work_is_cancelled_when_the_client_leaves(client: Client) -> None:
    client.dispatcher.stuck = True
    leaving = asyncio.create_task(client.post(PATH, json={"model": "org/embed", "input": "a"}))
    await client.dispatcher.submitted.wait()
    leaving.cancel()
    await asyncio.wait({leaving})
    assert client.dispatcher.answers[0].closed

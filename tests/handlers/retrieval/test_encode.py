"""POST /v1/encode/{model}."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from engines.protocol.events import Completed, EncodeOutput, ItemError, Output, SparseVector
from tests.handlers.scripted import failed

from . import fakes
from .conftest import Client
from .sdk import unpack

PATH = "/v1/encode/org/all"
ALL = ["dense", "sparse", "multivector"]
MEDIA = pytest.mark.parametrize("media", ["application/msgpack", "application/x-msgpack", "application/vnd.msgpack"])


def request(*texts: str, **params: Any) -> dict[str, Any]:
    return {"items": [{"id": f"id-{text}", "text": text} for text in texts], "params": params}


async def test_json_holds_lists_of_numbers(client: Client) -> None:
    response = await client.post(PATH, json=request("a", "three", output_types=ALL))
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "model": "org/all",
        "items": [
            {
                "id": f"id-{text}",
                "dense": {"dims": 4, "dtype": "float32", "values": [n, n / 10, -n, 0.1]},
                "sparse": {"dims": 100, "dtype": "float32", "indices": [1, n], "values": [0.5, 1.5]},
                "multivector": {"token_dims": 3, "num_tokens": 2, "dtype": "float32", "values": [[n, 0.0, 1.0]] * 2},
            }
            for text, n in (("a", 1), ("three", 5))
        ],
        "timing": {
            "total_ms": 5.0,
            "queue_ms": 1.25,
            "tokenization_ms": 0.5,
            "inference_ms": 3.0,
            "postprocessing_ms": 0.0,
        },
    }


@MEDIA
async def test_messagepack_holds_arrays_as_the_sdk_reads_them(client: Client, media: str) -> None:
    body = msgspec.msgpack.encode(request("a", "three", output_types=ALL))
    response = await client.post(PATH, content=body, headers={"content-type": media, "accept": media})
    assert response.headers["content-type"] == media
    one, other = unpack(response.content)["items"]
    assert other["dense"]["values"].dtype == np.float32
    assert other["dense"]["values"].tolist() == pytest.approx([5.0, 0.5, -5.0, 0.1])
    assert one["sparse"]["indices"].dtype == np.int32
    assert one["sparse"]["indices"].tolist() == [1, 1]
    assert one["sparse"]["values"].dtype == np.float32
    assert other["multivector"]["values"].shape == (2, 3)
    assert other["multivector"]["num_tokens"] == 2


async def test_the_reply_is_in_the_encoding_that_was_asked_for_whatever_the_request_was_in(client: Client) -> None:
    packed = await client.post(
        PATH, json=request("a"), headers={"accept": "application/json;q=0.5, application/msgpack"}
    )
    assert unpack(packed.content)["items"][0]["id"] == "id-a"
    body = msgspec.msgpack.encode(request("a"))
    plain = await client.post(PATH, content=body, headers={"content-type": "application/msgpack", "accept": "*/*"})
    assert plain.json()["items"][0]["id"] == "id-a"


async def test_an_error_is_json_even_for_messagepack_clients(client: Client) -> None:
    headers = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    response = await client.post("/v1/encode/org/none", content=msgspec.msgpack.encode(request("a")), headers=headers)
    assert response.headers["content-type"] == "application/json"
    assert response.json()["detail"]["code"] == "MODEL_NOT_FOUND"


async def test_ids_are_echoed_only_where_they_were_sent(client: Client) -> None:
    items = [{"text": "a"}, {"id": "mine", "text": "b"}, {"id": None, "text": "c"}]
    body = (await client.post(PATH, json={"items": items})).json()
    assert [item.get("id") for item in body["items"]] == [None, "mine", None]
    assert "id" not in body["items"][0]
    assert "sparse" not in body["items"][0]


@pytest.mark.parametrize(
    ("params", "dtype"),
    [
        ({}, "float32"),
        ({"options": {"output_dtype": "uint8"}}, "uint8"),
        ({"output_dtype": "float16", "options": {"output_dtype": "uint8"}}, "float16"),
        ({"options": {"profile": "small"}}, "int8"),
        ({"options": {"profile": "small", "output_dtype": "binary"}}, "binary"),
        ({"output_dtype": "float32", "options": {"profile": "small"}}, "float32"),
    ],
)
async def test_dtype_of_the_params_beats_the_options_beat_the_profile(
    client: Client, params: dict[str, Any], dtype: str
) -> None:
    await client.post(PATH, json=request("a", **params))
    assert client.dispatcher.works[0].output_dtype == dtype


async def test_params_and_options_reach_the_worker(client: Client) -> None:
    options = {
        "profile": "small",
        "is_query": True,
        "instruction": "second",
        "lora": "legal",
        "pooling": "cls",
        "x": None,
    }
    await client.post(PATH, json=request("a", instruction="first", options=options, output_types=["sparse", "sparse"]))
    [work] = client.dispatcher.works
    assert work.instruction == "first"
    assert work.profile == "small"
    assert work.is_query is True
    assert work.output_types == ("sparse",)
    assert work.options == {"lora": "legal", "pooling": "cls"}


async def test_the_instruction_of_the_options_counts_where_params_have_none(client: Client) -> None:
    await client.post(PATH, json=request("a", options={"instruction": "second"}))
    assert client.dispatcher.works[0].instruction == "second"


@pytest.mark.parametrize("packed", [False, True])
async def test_media_reach_the_worker_as_bytes(client: Client, packed: bool) -> None:
    item: dict[str, Any] = {
        "images": [{"data": b"\x89PNG" if packed else "iVBORw==", "format": "png"}, {"data": [1, 2, 255]}],
        "document": {"data": b"%PDF" if packed else "JVBERg==", "format": "pdf"},
    }
    if packed:
        body = msgspec.msgpack.encode({"items": [item]})
        await client.post(PATH, content=body, headers={"content-type": "application/msgpack"})
    else:
        await client.post(PATH, json={"items": [item]})
    [sent] = client.dispatcher.works[0].items
    assert [(image.data, image.format) for image in sent.images] == [(b"\x89PNG", "png"), (b"\x01\x02\xff", None)]
    assert (sent.document, sent.document_format) == (b"%PDF", "pdf")


QUANTISED = {
    "float16": ("<f2", [0.5, -1.5, 0.1, 3.0], np.float16),
    "int8": ("|i1", [1, -127, 3, 127], np.int8),
    "uint8": ("|u1", [0, 128, 255, 7], np.uint8),
}


@pytest.mark.parametrize("dtype", QUANTISED)
async def test_quantised_vectors_keep_their_type(client: Client, dtype: str) -> None:
    code, values, kind = QUANTISED[dtype]
    client.dispatcher.script = lambda work: EncodeOutput(
        dense=fakes.tensor([values], code), dense_dims=4, output_dtype=dtype
    )
    body = (await client.post(PATH, json=request("a", output_dtype=dtype))).json()
    assert body["items"][0]["dense"]["dtype"] == dtype
    assert np.array(body["items"][0]["dense"]["values"], kind).tolist() == np.array(values, kind).tolist()
    response = await client.post(PATH, json=request("a", output_dtype=dtype), headers={"accept": "application/msgpack"})
    assert unpack(response.content)["items"][0]["dense"]["values"].dtype == kind


async def test_binary_vectors_are_packed_and_tell_their_true_width(client: Client) -> None:
    client.dispatcher.script = lambda work: EncodeOutput(
        dense=fakes.tensor([[0b1010_0000, 0b1100_0000]], "|u1"), dense_dims=10, output_dtype="binary"
    )
    body = (await client.post(PATH, json=request("a", output_dtype="binary"))).json()
    assert body["items"][0]["dense"] == {"dims": 10, "dtype": "binary", "values": [160, 192]}


@pytest.mark.parametrize("accept", ["application/json", "application/msgpack"])
async def test_a_mixed_batch_returns_the_items_that_worked_in_order(client: Client, accept: str) -> None:
    def script(work: Any) -> Output:
        output = fakes.honest(work)
        assert isinstance(output, EncodeOutput)
        assert output.sparse is not None and output.multivector is not None
        output.errors = {1: ItemError("INVALID_INPUT", "no input"), 3: ItemError("inference_error", "odd")}
        output.sparse[1] = output.sparse[3] = output.multivector[1] = output.multivector[3] = None
        return output

    client.dispatcher.script = script
    response = await client.post(
        PATH, json=request("a", "b", "ccc", "d", "eeeee", output_types=ALL), headers={"accept": accept}
    )
    assert response.status_code == 200
    body = response.json() if "json" in accept else unpack(response.content)
    assert [item["id"] for item in body["items"]] == ["id-a", "id-ccc", "id-eeeee"]
    assert [item["dense"]["values"][0] for item in body["items"]] == [1, 3, 5]
    assert [item["sparse"]["indices"][1] for item in body["items"]] == [1, 3, 5]
    assert [item["multivector"]["values"][0][0] for item in body["items"]] == [1, 3, 5]


SDK_CODES = {"RESOURCE_EXHAUSTED", "MODEL_LOADING", "LORA_LOADING", "MODEL_LOAD_FAILED"}
BATCHES: list[tuple[str, list[str | None], int, str | None]] = [
    ("all of them invalid", ["INVALID_INPUT"] * 3, 400, "INVALID_INPUT"),
    ("one too large", [None, "PAYLOAD_TOO_LARGE", None], 413, "PAYLOAD_TOO_LARGE"),
    ("one lost on its way", ["transport_failure", None, None], 503, "QUEUE_UNAVAILABLE"),
    ("all out of memory", ["RESOURCE_EXHAUSTED"] * 3, 503, "RESOURCE_EXHAUSTED"),
    ("all wait for the model", ["MODEL_LOADING"] * 3, 503, "MODEL_LOADING"),
    ("all wait for the adapter", ["LORA_LOADING"] * 3, 503, "LORA_LOADING"),
    ("no model", ["MODEL_LOAD_FAILED"] * 3, 502, "MODEL_LOAD_FAILED"),
    ("all for different reasons", ["INVALID_INPUT", "inference_error", "INVALID_INPUT"], 500, None),
    ("all by inference", ["inference_error"] * 3, 500, None),
    ("some invalid", ["INVALID_INPUT", "INVALID_INPUT", None], 200, None),
    ("some out of memory", ["RESOURCE_EXHAUSTED", None, None], 200, None),
]


@pytest.mark.parametrize(("codes", "status", "code"), [row[1:] for row in BATCHES], ids=[row[0] for row in BATCHES])
async def test_what_becomes_of_a_batch(client: Client, codes: list[Any], status: int, code: str | None) -> None:
    client.dispatcher.script = lambda work: EncodeOutput(
        dense=fakes.tensor([[1, 2]] * 3),
        dense_dims=2,
        errors={i: ItemError(c, f"item {i}") for i, c in enumerate(codes) if c is not None},
    )
    response = await client.post(PATH, json=request("a", "b", "c"))
    body = response.json()
    assert response.status_code == status
    if status == 200:
        assert len(body["items"]) == codes.count(None)
    elif code is None:
        assert body["error"] == "all_items_failed"
        assert body["details"] == [{"item_index": i, "error": f"item {i}", "code": c} for i, c in enumerate(codes)]
    else:
        assert response.headers["x-sie-error-code"] == code
        said = body.get("detail") or body["error"]
        assert said["code"] == code
        assert said.get("param") == ("items[0]" if code == "INVALID_INPUT" else None)
        assert ("items[0]" in said["message"]) == (code == "INVALID_INPUT")
        assert ("retry-after" in response.headers) == (status == 503 and code != "QUEUE_UNAVAILABLE")
        # the official SDK retries by the code of an `error` object
        assert ("error" in body) == (
            code in {"RESOURCE_EXHAUSTED", "MODEL_LOADING", "LORA_LOADING", "MODEL_LOAD_FAILED"}
        )


BROKEN: dict[str, Output | None] = {
    "nothing": None,
    "another result": fakes.honest(fakes.SCORE),
    "no dense vectors": EncodeOutput(sparse=[fakes.sparse("a")]),
    "too few dense vectors": EncodeOutput(dense=fakes.tensor(np.zeros((0, 2)))),
    "dense vectors of one dimension": EncodeOutput(dense=fakes.tensor([1, 2])),
    "no sparse vectors": EncodeOutput(dense=fakes.tensor([[1.0]])),
    "too many sparse vectors": EncodeOutput(dense=fakes.tensor([[1.0]]), sparse=[fakes.sparse("a")] * 2),
    "no sparse vector for an item": EncodeOutput(dense=fakes.tensor([[1.0]]), sparse=[None]),
    "indices without values": EncodeOutput(
        dense=fakes.tensor([[1.0]]),
        sparse=[SparseVector(9, fakes.tensor([1, 2], "<i4"), fakes.tensor([1.0]))],
    ),
    "a multivector of one dimension": EncodeOutput(
        dense=fakes.tensor([[1.0]]), sparse=[fakes.sparse("a")], multivector=[fakes.tensor([1.0])]
    ),
    "not a number": EncodeOutput(
        dense=fakes.tensor([[np.nan]]), sparse=[fakes.sparse("a")], multivector=[fakes.tensor([[1.0]])]
    ),
    "not a number in a token": EncodeOutput(
        dense=fakes.tensor([[1.0]]), sparse=[fakes.sparse("a")], multivector=[fakes.tensor([[np.inf]])]
    ),
}


@pytest.mark.parametrize("accept", ["application/json", "application/msgpack"])
@pytest.mark.parametrize("output", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_result_is_an_error(client: Client, output: Output | None, accept: str) -> None:
    client.dispatcher.script = lambda work: fakes.completed(output)
    response = await client.post(PATH, json=request("a", output_types=ALL), headers={"accept": accept})
    assert response.status_code == 500
    assert response.json()["detail"]["code"] == "INTERNAL_SERVER_ERROR"


async def test_a_model_that_cannot_be_loaded_is_told_with_its_facts(client: Client) -> None:
    details = {"error_class": "GatedRepoError", "attempts": 3, "permanent": True}
    client.dispatcher.script = lambda work: failed("MODEL_LOAD_FAILED", "gated", details=details)
    response = await client.post(PATH, json=request("a"))
    assert response.status_code == 502
    error = response.json()["error"]
    assert {"code": "MODEL_LOAD_FAILED", "message": "gated", **details}.items() <= error.items()
    assert response.headers["x-sie-error-code"] == "MODEL_LOAD_FAILED"
    assert response.headers["x-sie-error-version"]
    assert "retry-after" not in response.headers


async def test_a_timeout_can_be_retried(client: Client) -> None:
    client.dispatcher.script = lambda work: failed("overall_timeout")
    response = await client.post(PATH, json=request("a"))
    assert (response.status_code, response.headers["retry-after"]) == (504, "5")
    assert response.json()["detail"]["code"] == "GATEWAY_TIMEOUT"


async def test_success_headers_tell_the_call(client: Client) -> None:
    headers = (await client.post(PATH, json=request("a"))).headers
    for name in ("x-sie-worker", "x-queue-publish-time", "x-queue-wait-time", "x-queue-time", "x-inference-time"):
        assert name in headers
    assert isinstance(client.dispatcher.answers[0].events[-1], Completed)
    assert client.dispatcher.answers[0].closed


async def test_a_large_batch_lets_others_in(client: Client) -> None:
    client.dispatcher.script = lambda work: EncodeOutput(
        multivector=[fakes.tensor(np.ones((8, 3)))] * len(work.items), token_dims=3
    )
    encoding = asyncio.create_task(client.post(PATH, json=request(*["a"] * 200, output_types=["multivector"])))
    turns = 0
    while not encoding.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(encoding.result().json()["items"]) == 200
    assert turns >= 200

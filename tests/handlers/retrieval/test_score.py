"""POST /v1/score/{model}."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from engines.protocol.events import Completed, EncodeOutput, ScoreOutput

from . import fakes
from .conftest import Client

PATH = "/v1/score/org/rerank"


def request(**more: Any) -> dict[str, Any]:
    items = [{"text": "a"}, {"id": "mine", "text": "b"}, {"text": "c"}, {"text": "d"}]
    return {"query": {"text": "q"}, "items": items, **more}


def scored(scores: list[float], kind: Any = "logit", **usage: int) -> Any:
    return lambda work: fakes.completed(ScoreOutput(scores=scores, kind=kind), **usage)


@pytest.mark.parametrize("kind", ["logit", "similarity", "maxsim"])
async def test_raw_scores_fall_with_ties_in_request_order(client: Client, kind: str) -> None:
    client.dispatcher.script = scored([-1.0, 31.5, 31.5, 40.0], kind)
    assert (await client.post(PATH, json=request())).json() == {
        "model": "org/rerank",
        "scores": [
            {"item_id": "item-3", "score": 40.0, "rank": 0},
            {"item_id": "mine", "score": 31.5, "rank": 1},
            {"item_id": "item-2", "score": 31.5, "rank": 2},
            {"item_id": "item-0", "score": -1.0, "rank": 3},
        ],
        "usage": {"input_tokens": 7},
    }


async def test_messagepack_both_ways(client: Client) -> None:
    headers = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    response = await client.post(PATH, content=msgspec.msgpack.encode(request()), headers=headers)
    assert response.headers["content-type"] == "application/msgpack"
    assert msgspec.msgpack.decode(response.content)["scores"][0] == {"item_id": "item-0", "score": 1.0, "rank": 0}


async def test_the_query_id_is_echoed_when_it_was_sent(client: Client) -> None:
    assert "query_id" not in (await client.post(PATH, json=request())).json()
    body = (await client.post(PATH, json=request(query={"id": "q-1", "text": "q"}))).json()
    assert body["query_id"] == "q-1"


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({"prompt_tokens": 9}, {"input_tokens": 9}),
        ({"prompt_tokens": 9, "images": 1}, {"input_tokens": 9, "images": 1}),
        ({"prompt_tokens": 0}, None),
    ],
)
async def test_usage_is_only_what_the_worker_counted(client: Client, usage: dict[str, int], told: Any) -> None:
    client.dispatcher.script = scored([1.0] * 4, **usage)
    assert (await client.post(PATH, json=request())).json().get("usage") == told


@pytest.mark.parametrize(
    ("more", "instruction"),
    [
        ({}, None),
        ({"instruction": "first"}, "first"),
        ({"options": {"instruction": "second"}}, "second"),
        ({"instruction": "first", "options": {"instruction": "second"}}, "first"),
        ({"instruction": None, "options": {"instruction": "second"}}, "second"),
    ],
)
async def test_the_instruction_of_the_options_counts_where_the_body_has_none(
    client: Client, more: dict[str, Any], instruction: str | None
) -> None:
    await client.post(PATH, json=request(**more))
    assert client.dispatcher.works[0].instruction == instruction


async def test_options_reach_the_worker(client: Client) -> None:
    await client.post(PATH, json=request(options={"profile": "small", "max_seq_length": 64, "other": 1, "none": None}))
    [work] = client.dispatcher.works
    assert (work.profile, work.max_sequence_length, work.options) == ("small", 64, {"other": 1})
    assert [item.text for item in work.items] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "said",
    [
        fakes.completed(None),
        fakes.completed(EncodeOutput()),
        fakes.completed(ScoreOutput(scores=[1.0] * 3, kind="logit")),
        fakes.completed(ScoreOutput(scores=[1.0, 2.0, math.nan, 0.0], kind="logit")),
    ],
    ids=["nothing", "another result", "too few", "nan"],
)
async def test_a_broken_result_is_an_error(client: Client, said: Completed) -> None:
    client.dispatcher.script = lambda work: said
    response = await client.post(PATH, json=request())
    assert response.status_code == 500
    assert response.json()["detail"]["code"] == "INFERENCE_ERROR"

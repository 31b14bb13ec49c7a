"""POST /v1/extract/{model}."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engines.protocol.events import ExtractOutput, ScoreOutput

from . import fakes
from .conftest import Client

PATH = "/v1/extract/org/extract"
ENTITY = {"text": "Paris", "label": "city", "score": 0.9, "start": 3, "end": 8}


def request(*texts: str, **params: Any) -> dict[str, Any]:
    items = [{"text": text} for text in texts]
    items[-1]["id"] = "last"
    return {"items": items, "params": params}


def extracted(*items: dict[str, Any]) -> Any:
    return lambda work: ExtractOutput(items=list(items))


@pytest.mark.parametrize("packed", [False, True])
async def test_each_item_has_its_id_and_all_three_arrays(client: Client, packed: bool) -> None:
    client.dispatcher.script = extracted(
        {"entities": [ENTITY]},
        {
            "relations": [{"head": "a", "tail": "b", "relation": "r", "score": 1.0}],
            "classifications": [{"label": "x", "score": 0.5}],
            "data": {"any": [1]},
        },
    )
    headers = {"accept": "application/msgpack"} if packed else {}
    response = await client.post(PATH, json=request("in Paris", "b"), headers=headers)
    body = msgspec.msgpack.decode(response.content) if packed else response.json()
    assert body == {
        "model": "org/extract",
        "items": [
            {"id": "item-0", "entities": [ENTITY], "relations": [], "classifications": []},
            {
                "id": "last",
                "entities": [],
                "relations": [{"head": "a", "tail": "b", "relation": "r", "score": 1.0}],
                "classifications": [{"label": "x", "score": 0.5}],
                "data": {"any": [1]},
            },
        ],
    }


async def test_an_items_error_stands_beside_what_it_yielded(client: Client) -> None:
    error = {"code": "INVALID_INPUT", "message": "page 3 cannot be read"}
    client.dispatcher.script = extracted({"entities": [ENTITY], "error": error}, {"entities": [], "error": None})
    response = await client.post(PATH, json=request("a", "b"))
    assert response.status_code == 200
    one, other = response.json()["items"]
    assert (one["entities"], one["error"]) == ([ENTITY], error)
    assert "error" not in other


async def test_params_reach_the_worker(client: Client) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    options = {"profile": "small", "threshold": 0.3, "instruction": "second"}
    await client.post(PATH, json=request("a", labels=["city"], output_schema=schema, options=options))
    [work] = client.dispatcher.works
    assert (work.labels, work.output_schema, work.profile) == (["city"], schema, "small")
    assert (work.instruction, work.options) == ("second", {"threshold": 0.3})


@pytest.mark.parametrize(
    "output",
    [None, ScoreOutput(scores=[1.0], kind="logit"), ExtractOutput(items=[]), ExtractOutput(items=[{}] * 3)],
    ids=["nothing", "another result", "too few", "too many"],
)
async def test_a_broken_result_is_an_error(client: Client, output: Any) -> None:
    client.dispatcher.script = lambda work: fakes.completed(output)
    response = await client.post(PATH, json=request("a", "b"))
    assert response.status_code == 500
    assert response.json()["detail"]["code"] == "INTERNAL_SERVER_ERROR"


async def test_a_score_that_is_not_finite_is_not_json(client: Client) -> None:
    client.dispatcher.script = extracted({"data": {1.5: object()}})
    response = await client.post(PATH, json=request("a"))
    assert response.status_code == 500
    assert response.json()["detail"]["code"] == "SERIALIZATION_ERROR"

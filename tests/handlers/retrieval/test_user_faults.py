"""How servers of this kind failed the users of embeddings and rerank, by the numbers of the list of user faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pybase64
import pytest

from engines.protocol.events import ScoreOutput
from tests.handlers.scripted import failed

from . import fakes
from .conftest import Client

EMBED: dict[str, Any] = {"model": "org/embed"}
RERANK: dict[str, Any] = {"model": "org/rerank", "query": "q", "documents": ["a", "b", "c"]}
ROUTES = pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])


def scored(*scores: float) -> Any:
    return lambda work: ScoreOutput(scores=list(scores), kind="logit")


async def test_26_base64_is_little_endian_float32(client: Client) -> None:
    body = (await client.post("/v1/embeddings", json=EMBED | {"input": "abc", "encoding_format": "base64"})).json()
    text = body["data"][0]["embedding"]
    assert pybase64.b64decode(text, validate=True) == np.array([3, 0.3, -3, 0.1], "<f4").tobytes()


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1, 2], [3]], [[]]])
async def test_27_token_ids_are_refused_with_what_to_set(client: Client, tokens: Any) -> None:
    response = await client.post("/v1/embeddings", json=EMBED | {"input": tokens})
    assert response.status_code == 400
    error = response.json()["error"]
    assert "check_embedding_ctx_length=False" in error["message"]
    assert error["param"] == "input"


@pytest.mark.parametrize(("texts", "count"), [("", 1), ([""], 1), (["a", "", "b"], 3)])
async def test_28_an_empty_text_is_embedded_like_any_other(client: Client, texts: Any, count: int) -> None:
    body = (await client.post("/v1/embeddings", json=EMBED | {"input": texts})).json()
    assert [entry["index"] for entry in body["data"]] == list(range(count))
    assert [item.text for item in client.dispatcher.works[0].items] == ([texts] if texts == "" else texts)


async def test_28_no_text_at_all_is_refused(client: Client) -> None:
    response = await client.post("/v1/embeddings", json=EMBED | {"input": []})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "input")


async def test_29_the_cap_on_inputs_comes_before_any_work(client: Client) -> None:
    response = await client.post("/v1/embeddings", json=EMBED | {"input": ["a"] * 6000})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "input")
    assert client.dispatcher.works == []


async def test_30_results_are_in_input_order(client: Client) -> None:
    texts = ["x" * size for size in (40, 1, 300, 7, 7, 2)]
    body = (await client.post("/v1/embeddings", json=EMBED | {"input": texts})).json()
    assert [entry["index"] for entry in body["data"]] == [0, 1, 2, 3, 4, 5]
    assert [entry["embedding"][0] for entry in body["data"]] == [40, 1, 300, 7, 7, 2]


async def test_31_a_long_text_reaches_the_worker_whole(client: Client) -> None:
    long = "word " * 100_000
    await client.post("/v1/embeddings", json=EMBED | {"input": long})
    assert client.dispatcher.works[0].items[0].text == long  # cutting is the engine's, in tokens


@ROUTES
async def test_33_by_score_then_by_index_then_cut(client: Client, path: str) -> None:
    client.dispatcher.script = scored(0.1, 0.9, 0.9)
    body = (await client.post(path, json=RERANK | {"top_n": 2})).json()
    assert [result["index"] for result in body["results"]] == [1, 2]
    body = (await client.post(path, json=RERANK | {"top_n": 50})).json()
    assert [result["index"] for result in body["results"]] == [1, 2, 0]


@ROUTES
async def test_34_relevance_is_from_0_to_1(client: Client, path: str) -> None:
    client.dispatcher.script = scored(-11.2, 8.9, 0.0)
    body = (await client.post(path, json=RERANK)).json()
    assert [result["relevance_score"] for result in body["results"]] == pytest.approx(
        [0.9998636, 0.5, 0.0000137], abs=1e-6
    )


@ROUTES
async def test_35_near_certain_scores_keep_their_order(client: Client, path: str) -> None:
    client.dispatcher.script = scored(12.0, 12.1, 12.2)  # all 1.0 in bfloat16
    results = (await client.post(path, json=RERANK)).json()["results"]
    assert [result["index"] for result in results] == [2, 1, 0]
    assert len({result["relevance_score"] for result in results}) == 3
    client.dispatcher.script = scored(40.0, 50.0, 60.0)  # all 1.0 in float64
    results = (await client.post(path, json=RERANK)).json()["results"]
    assert [result["index"] for result in results] == [2, 1, 0]


async def test_36_documents_come_back_as_objects(client: Client) -> None:
    client.dispatcher.script = scored(1.0, 2.0, 3.0)
    body = (await client.post("/v1/rerank", json=RERANK | {"return_documents": True})).json()
    assert [result["document"] for result in body["results"]] == [{"text": "c"}, {"text": "b"}, {"text": "a"}]


async def test_37_a_base_url_that_ends_in_v1_is_recognised(client: Client) -> None:
    response = await client.post("/v1/v2/rerank", json=RERANK)
    assert response.status_code == 404
    assert "base_url" in response.text


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/embeddings", EMBED | {"input": "a"}), ("/v1/rerank", RERANK), ("/v2/rerank", RERANK)]
)
async def test_39_every_fault_is_in_the_envelope_of_its_surface(client: Client, path: str, body: Any) -> None:
    def crash(work: Any) -> Any:
        raise RuntimeError("secret of the inside")

    for script in (crash, lambda work: failed("inference_error", "no luck"), lambda work: fakes.completed(None)):
        client.dispatcher.script = script
        response = await client.post(path, json=body)
        assert response.status_code == 500
        assert "secret" not in response.text
        if path == "/v1/embeddings":
            error = response.json()["error"]
            assert error.keys() == {"message", "type", "param", "code"}
            assert isinstance(error["code"], str)
        else:
            assert response.json().keys() == {"message"}

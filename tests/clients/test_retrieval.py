"""Embeddings, rerank and the native operations on the real server with real models: what users of such servers met."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from tests.live import EMBEDDING_MODEL, KEY

LENGTHS = (40, 1, 300, 7, 120, 2, 64, 15)
TEXTS = [" ".join(f"word{index}" for _ in range(length)) for index, length in enumerate(LENGTHS)]
QUERY = "What is the capital of France?"
DOCUMENTS = ["Bananas are rich in potassium.", "Paris is the capital of France.", "Berlin is in Germany.", "Paris."]


@pytest.fixture(scope="module")
def http(base_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base_url, headers={"authorization": f"Bearer {KEY}"}, timeout=120) as client:
        yield client


def embed(http: httpx.Client, texts: Any, **more: Any) -> Any:
    response = http.post("/v1/embeddings", json={"model": EMBEDDING_MODEL, "input": texts, **more})
    assert response.status_code == 200, response.text
    return response.json()


def matrix(body: Any) -> np.ndarray:
    assert [entry["index"] for entry in body["data"]] == list(range(len(body["data"])))
    return np.array([entry["embedding"] for entry in body["data"]])


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """The same vectors but for what a batch's padding does to the last bits of bfloat16."""
    cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    return bool((cosines > 0.998).all())


def test_28_an_empty_text_has_a_vector_alone_and_among_others(http: httpx.Client) -> None:
    alone = matrix(embed(http, ""))
    assert same(alone, matrix(embed(http, [""])))
    among = matrix(embed(http, ["a", "", "b"]))
    assert same(among[1:2], alone)
    assert not same(among[0:1], alone)


def test_28_the_server_lives_on_after_what_it_refuses(http: httpx.Client) -> None:
    for texts in ([], [None], [[]], [1], ["a"] * 257, ["a"] * 6000, {}, None):
        response = http.post("/v1/embeddings", json={"model": EMBEDDING_MODEL, "input": texts})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "input")
    assert len(embed(http, ["a"] * 256)["data"]) == 256


def test_30_vectors_are_in_input_order_whatever_the_lengths(http: httpx.Client) -> None:
    together = matrix(embed(http, TEXTS))
    alone = np.concatenate([matrix(embed(http, text)) for text in TEXTS])
    assert same(together, alone)
    assert not same(together, np.roll(alone, 1, axis=0))


def test_31_a_long_text_is_cut_at_the_models_length_in_tokens(http: httpx.Client) -> None:
    model = http.get(f"/v1/models/{EMBEDDING_MODEL}").json()
    limit = model["max_sequence_length"]
    long = "word " * 5000
    body = embed(http, long)
    assert body["usage"]["prompt_tokens"] == limit
    assert same(matrix(body), matrix(embed(http, "word " * (limit - 2))))  # the two special tokens count


def test_32_a_batch_and_its_texts_one_by_one_are_taken_alike(http: httpx.Client) -> None:
    texts = [f"{text} {index}" for index in range(4) for text in TEXTS]
    with ThreadPoolExecutor(32) as pool:
        alone = np.concatenate(list(pool.map(lambda text: matrix(embed(http, text)), texts)))
    assert same(matrix(embed(http, texts)), alone)


def test_usage_adds_up(http: httpx.Client) -> None:
    each = [embed(http, text)["usage"]["prompt_tokens"] for text in TEXTS]
    assert embed(http, TEXTS)["usage"] == {"prompt_tokens": sum(each), "total_tokens": sum(each)}


def test_native_and_openai_vectors_are_the_same(http: httpx.Client) -> None:
    items = [{"id": str(index), "text": text} for index, text in enumerate(TEXTS)]
    body = http.post(f"/v1/encode/{EMBEDDING_MODEL}", json={"items": items}).json()
    assert [item["id"] for item in body["items"]] == [str(index) for index in range(len(TEXTS))]
    assert same(np.array([item["dense"]["values"] for item in body["items"]]), matrix(embed(http, TEXTS)))


def test_a_mixed_batch_returns_what_worked(http: httpx.Client) -> None:
    items = [{"id": "a", "text": "a"}, {"id": "none"}, {"id": "b", "text": ""}]
    response = http.post(f"/v1/encode/{EMBEDDING_MODEL}", json={"items": items})
    assert response.status_code == 200
    assert [item["id"] for item in response.json()["items"]] == ["a", "b"]
    response = http.post(f"/v1/encode/{EMBEDDING_MODEL}", json={"items": [{}, {"text": None}]})
    assert (response.status_code, response.json()["detail"]["code"]) == (400, "INVALID_INPUT")


def test_33_to_36_rerank_orders_bounds_cuts_and_returns(http: httpx.Client) -> None:
    request = {"model": EMBEDDING_MODEL, "query": QUERY, "documents": DOCUMENTS, "return_documents": True}
    body = http.post("/v1/rerank", json=request).json()
    scores = [result["relevance_score"] for result in body["results"]]
    assert body["results"][0]["index"] == 1
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert all(result["document"] == {"text": DOCUMENTS[result["index"]]} for result in body["results"])
    cut = http.post("/v1/rerank", json=request | {"top_n": 2}).json()
    assert cut["results"] == body["results"][:2]


def test_rerank_keeps_ties_in_document_order(http: httpx.Client) -> None:
    request = {"model": EMBEDDING_MODEL, "query": QUERY, "documents": ["the same"] * 5}
    body = http.post("/v2/rerank", json=request).json()
    assert len({result["relevance_score"] for result in body["results"]}) == 1
    assert [result["index"] for result in body["results"]] == [0, 1, 2, 3, 4]


def test_score_and_rerank_agree(http: httpx.Client) -> None:
    items = [{"text": text} for text in DOCUMENTS]
    native = http.post(f"/v1/score/{EMBEDDING_MODEL}", json={"query": {"text": QUERY}, "items": items}).json()
    ranked = http.post("/v2/rerank", json={"model": EMBEDDING_MODEL, "query": QUERY, "documents": DOCUMENTS}).json()
    order = [int(entry["item_id"].removeprefix("item-")) for entry in native["scores"]]
    assert order == [result["index"] for result in ranked["results"]]


def test_a_thousand_documents(http: httpx.Client) -> None:
    documents = [f"document {index}" for index in range(999)] + [DOCUMENTS[1]]
    request = {"model": EMBEDDING_MODEL, "query": QUERY, "documents": documents, "top_n": 3}
    body = http.post("/v2/rerank", json=request).json()
    assert body["results"][0]["index"] == 999
    assert len(body["results"]) == 3


def test_headers_tell_what_the_call_took(http: httpx.Client) -> None:
    for path, body in (
        ("/v1/embeddings", {"model": EMBEDDING_MODEL, "input": "a"}),
        ("/v2/rerank", {"model": EMBEDDING_MODEL, "query": "a", "documents": ["a"]}),
        (f"/v1/encode/{EMBEDDING_MODEL}", {"items": [{"text": "a"}]}),
        (f"/v1/score/{EMBEDDING_MODEL}", {"query": {"text": "a"}, "items": [{"text": "a"}]}),
    ):
        headers = http.post(path, json=body).headers
        assert float(headers["x-inference-time"]) > 0
        assert float(headers["x-queue-wait-time"]) >= float(headers["x-inference-time"])
        assert headers["x-sie-worker"] == f"queue:{headers['x-sie-request-id']}"
        assert headers["x-request-id"] == headers["x-sie-request-id"]

"""The unmodified Cohere SDK's rerank, v1 and v2, against the real server."""

from __future__ import annotations

from typing import Any

import cohere
import pytest
from cohere.core.api_error import ApiError

from tests.live import CHAT_MODEL, EMBEDDING_MODEL, KEY

QUERY = "What is the capital of France?"
DOCUMENTS = [
    "Berlin is the capital of Germany.",
    "Bananas are rich in potassium.",
    "Paris is the capital and largest city of France.",
    "The Rhine flows through Basel.",
]


@pytest.fixture
def v1(base_url: str) -> cohere.Client:
    return cohere.Client(api_key=KEY, base_url=base_url)


@pytest.fixture
def v2(base_url: str) -> cohere.ClientV2:
    return cohere.ClientV2(api_key=KEY, base_url=base_url)


def order(reply: Any) -> list[int]:
    return [result.index for result in reply.results]


def test_v2_ranks_paris_first(v2: cohere.ClientV2) -> None:
    reply = v2.rerank(model=EMBEDDING_MODEL, query=QUERY, documents=DOCUMENTS)
    assert order(reply)[0] == 2
    assert sorted(order(reply)) == [0, 1, 2, 3]
    scores = [result.relevance_score for result in reply.results]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_v1_and_v2_agree(v1: cohere.Client, v2: cohere.ClientV2) -> None:
    first = v1.rerank(model=EMBEDDING_MODEL, query=QUERY, documents=DOCUMENTS)
    second = v2.rerank(model=EMBEDDING_MODEL, query=QUERY, documents=DOCUMENTS)
    assert order(first) == order(second)
    assert [result.relevance_score for result in first.results] == pytest.approx(
        [result.relevance_score for result in second.results], abs=1e-6
    )


@pytest.mark.parametrize("top_n", [1, 2, 100])
def test_top_n_cuts_after_ranking(v2: cohere.ClientV2, top_n: int) -> None:
    everything = order(v2.rerank(model=EMBEDDING_MODEL, query=QUERY, documents=DOCUMENTS))
    cut = order(v2.rerank(model=EMBEDDING_MODEL, query=QUERY, documents=DOCUMENTS, top_n=top_n))
    assert cut == everything[:top_n]


def test_v1_returns_documents_as_objects(v1: cohere.Client) -> None:
    reply = v1.rerank(model=EMBEDDING_MODEL, query=QUERY, documents=DOCUMENTS, top_n=1, return_documents=True)
    assert reply.results[0].document is not None
    assert reply.results[0].document.text == DOCUMENTS[2]


async def test_async_client_gets_the_same_order(base_url: str, v2: cohere.ClientV2) -> None:
    client = cohere.AsyncClientV2(api_key=KEY, base_url=base_url)
    reply = await client.rerank(model=EMBEDDING_MODEL, query=QUERY, documents=DOCUMENTS)
    assert order(reply) == order(v2.rerank(model=EMBEDDING_MODEL, query=QUERY, documents=DOCUMENTS))


def test_unknown_model_is_a_typed_not_found(v2: cohere.ClientV2) -> None:
    with pytest.raises(cohere.NotFoundError) as caught:
        v2.rerank(model="nobody/nothing", query=QUERY, documents=DOCUMENTS)
    assert "nobody/nothing" in caught.value.body["message"]


def test_no_documents_is_a_typed_bad_request(v2: cohere.ClientV2) -> None:
    with pytest.raises(cohere.BadRequestError) as caught:
        v2.rerank(model=EMBEDDING_MODEL, query=QUERY, documents=[])
    assert "documents" in caught.value.body["message"]


def test_base_url_with_v1_gets_a_hint(base_url: str) -> None:
    client = cohere.ClientV2(api_key=KEY, base_url=f"{base_url}/v1")
    with pytest.raises(ApiError) as caught:
        client.rerank(model=EMBEDDING_MODEL, query=QUERY, documents=DOCUMENTS)
    assert caught.value.status_code == 404
    assert "base_url" in str(caught.value.body)


def test_a_generation_model_cannot_rank(v2: cohere.ClientV2) -> None:
    with pytest.raises(ApiError) as caught:
        v2.rerank(model=CHAT_MODEL, query=QUERY, documents=DOCUMENTS)
    assert caught.value.status_code == 400

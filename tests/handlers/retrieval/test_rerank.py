"""POST /v1/rerank and /v2/rerank."""

from __future__ import annotations

import itertools
import math
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.protocol.events import Completed, EncodeOutput, ScoreOutput
from handlers.retrieval.relevance import ranking, relevance
from tests.handlers.scripted import failed

from . import fakes
from .conftest import Client

PATHS = pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
DOCUMENTS = ["a", "b", "c", "d"]


def request(**more: Any) -> dict[str, Any]:
    return {"model": "org/rerank", "query": "q", "documents": DOCUMENTS, **more}


def scored(scores: list[float], kind: Any = "logit", **usage: int) -> Any:
    return lambda work: fakes.completed(ScoreOutput(scores=scores, kind=kind), **usage)


@PATHS
async def test_results_fall_by_score_with_ties_by_index(client: Client, path: str) -> None:
    client.dispatcher.script = scored([0.0, 3.0, 0.0, -2.0])
    body = (await client.post(path, json=request())).json()
    assert [result["index"] for result in body["results"]] == [1, 0, 2, 3]
    assert [result["relevance_score"] for result in body["results"]] == pytest.approx(
        [0.952574, 0.5, 0.5, 0.119203], abs=1e-6
    )
    assert all(result.keys() == {"index", "relevance_score"} for result in body["results"])


@PATHS
@pytest.mark.parametrize(("top_n", "count"), [(1, 1), (3, 3), (4, 4), (5, 4), (10**12, 4), (None, 4)])
async def test_top_n_cuts_after_sorting_and_over_the_length_means_all(
    client: Client, path: str, top_n: int | None, count: int
) -> None:
    client.dispatcher.script = scored([1.0, 2.0, 3.0, 4.0])
    body = (await client.post(path, json=request(top_n=top_n))).json()
    assert [result["index"] for result in body["results"]] == [3, 2, 1, 0][:count]


@PATHS
async def test_the_reply_has_what_old_and_new_clients_read(client: Client, path: str) -> None:
    client.dispatcher.script = scored([1.0] * 4, prompt_tokens=11, images=2)
    body = (await client.post(path, json=request(model="ORG/rerank"))).json()
    assert body["model"] == "org/rerank"
    assert body["usage"] == {"input_tokens": 11, "images": 2}
    assert str(UUID(body["id"])) == body["id"]
    assert body["meta"] == {"api_version": {"version": path[2]}}


@PATHS
async def test_the_work_carries_query_documents_and_options(client: Client, path: str) -> None:
    options = {"profile": "small", "max_seq_length": 64}
    await client.post(
        path, json=request(model="other:/org/rerank", options=options), headers={"x-sie-machine-profile": "l4"}
    )
    [work] = client.dispatcher.works
    assert (work.model, work.profile, work.bundle) == ("org/rerank", "small", "other")
    assert work.query.text == "q"
    assert [item.text for item in work.items] == DOCUMENTS
    assert work.max_sequence_length == 64
    assert client.dispatcher.routes[0].machine_profile == "l4"


@pytest.mark.parametrize(
    ("asked", "documents"),
    [(True, [{"text": "b"}, {"text": "a"}, {"text": "c"}, {"text": "d"}]), (False, None), (None, None)],
)
async def test_return_documents_are_objects_with_text(client: Client, asked: bool | None, documents: Any) -> None:
    client.dispatcher.script = scored([0.0, 1.0, 0.0, -1.0])
    body = (await client.post("/v1/rerank", json=request(return_documents=asked))).json()
    assert [result.get("document") for result in body["results"]] == (documents or [None] * 4)


@PATHS
@pytest.mark.parametrize(
    "said",
    [
        fakes.completed(None),
        fakes.completed(EncodeOutput()),
        fakes.completed(ScoreOutput(scores=[1.0] * 3, kind="logit")),
        fakes.completed(ScoreOutput(scores=[1.0] * 5, kind="logit")),
        fakes.completed(ScoreOutput(scores=[1.0, 2.0, math.nan, 0.0], kind="logit")),
        fakes.completed(ScoreOutput(scores=[1.0, 2.0, math.inf, 0.0], kind="logit")),
        fakes.completed(ScoreOutput(scores=[1.0] * 4, kind="logit"), prompt_tokens=0),
    ],
    ids=["nothing", "another result", "too few", "too many", "nan", "inf", "no usage"],
)
async def test_an_incomplete_result_is_an_error(client: Client, path: str, said: Completed) -> None:
    client.dispatcher.script = lambda work: said
    response = await client.post(path, json=request())
    assert response.status_code == 500
    assert response.json().keys() == {"message"}


@PATHS
@pytest.mark.parametrize(
    ("code", "status", "header"),
    [
        ("RESOURCE_EXHAUSTED", 503, "RESOURCE_EXHAUSTED"),
        ("MODEL_LOADING", 503, "MODEL_LOADING"),
        ("MODEL_LOAD_FAILED", 502, "MODEL_LOAD_FAILED"),
        ("overall_timeout", 504, "GATEWAY_TIMEOUT"),
        ("PAYLOAD_TOO_LARGE", 413, "PAYLOAD_TOO_LARGE"),
        ("INVALID_INPUT", 400, "INVALID_INPUT"),
    ],
)
async def test_a_failure_is_a_message_with_the_native_code_in_a_header(
    client: Client, path: str, code: str, status: int, header: str
) -> None:
    client.dispatcher.script = lambda work: failed(code)
    response = await client.post(path, json=request())
    assert (response.status_code, response.json()) == (status, {"message": "it went wrong"})
    assert response.headers["x-sie-error-code"] == header
    assert ("retry-after" in response.headers) == (status in (503, 504))


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(finite, st.sampled_from(["logit", "similarity", "maxsim"]))
def test_relevance_is_from_0_to_1(score: float, kind: Any) -> None:
    assert 0.0 <= relevance(score, kind) <= 1.0


@given(finite, finite, st.sampled_from(["logit", "similarity", "maxsim"]))
def test_relevance_never_turns_two_scores_round(one: float, other: float, kind: Any) -> None:
    assert (relevance(one, kind) <= relevance(other, kind)) or one > other


def test_relevance_is_one_sigmoid_of_a_logit() -> None:
    assert relevance(0.0, "logit") == 0.5
    assert relevance(8.0, "logit") == pytest.approx(0.99966464986953, abs=1e-14)
    assert relevance(-800.0, "logit") == 0.0
    assert relevance(800.0, "logit") == 1.0


def test_relevance_of_a_cosine_is_linear() -> None:
    assert [relevance(x, "similarity") for x in (-1.0, 0.0, 1.0, 1.0000001)] == [0.0, 0.5, 1.0, 1.0]


def test_relevance_of_maxsim_sums_stays_apart() -> None:
    told = [relevance(score, "maxsim") for score in (-5.0, 0.0, 18.0, 18.01, 30.0, 31.0)]
    assert all(one < other for one, other in itertools.pairwise(told))


@given(st.lists(finite))
def test_ranking_is_a_stable_sort_by_falling_score(scores: list[float]) -> None:
    order = ranking(scores)
    assert sorted(order) == list(range(len(scores)))
    for before, after in itertools.pairwise(order):
        assert (scores[before], -before) > (scores[after], -after)

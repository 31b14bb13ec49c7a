"""Models whose entries choose vLLM's pooling runner, on the real server: the libraries' own answers beside them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import cohere
import httpx
import numpy as np
import openai
import psutil
import pytest
import torch
import yaml
from sentence_transformers import CrossEncoder, SentenceTransformer

from engines import embedded
from tests.clients.test_own_models import QUERY, TEXTS, Ask, both, items, scores
from tests.engines.retrieval import checkpoints
from tests.engines.retrieval.helpers import MINILM, cosines
from tests.live import Server, opened

ADAPTER = "engines.adapters.vllm.pooling:VllmPoolingEngine"


@pytest.fixture(scope="module")
def labels_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random cross-encoder with two labels, its heads of attention as wide as vLLM's kernels need them."""
    return str(checkpoints.backbones(tmp_path_factory.mktemp("wide"), hidden_size=64)["labels"])


@pytest.fixture(scope="module")
def own(labels_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has loaded nothing yet and knows MiniLM and the cross-encoder."""
    catalog = tmp_path_factory.mktemp("catalog")
    dense = {"sie_id": "tiny/dense", "source": MINILM, "tasks": {"encode": {"dense": {"dim": 384}}, "score": {}}}
    cross = {"sie_id": "tiny/cross", "source": labels_path, "tasks": {"score": {}}}
    for entry, precision in ((dense, {}), (cross, {"compute_precision": "float32"})):
        entry |= {"inputs": {"text": True}, "profiles": {"default": {"adapter_path": ADAPTER, **precision}}}
        (catalog / f"{str(entry['sie_id']).partition('/')[2]}.yaml").write_text(yaml.safe_dump(entry))
    settings = {"SIE_PRELOAD_MODELS": "", "SIE_MODELS_DIR": str(catalog), "SIE_CATALOG_STRICT": "true"}
    with opened(tmp_path_factory.mktemp("own") / "server.log", settings) as running:
        yield running


@pytest.fixture(scope="module")
def http(own: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=own.url, timeout=280) as client:
        yield client


@pytest.fixture(scope="module")
def minilm() -> SentenceTransformer:
    return SentenceTransformer(str(embedded.prepare(MINILM)), device="cpu")


@both
def test_vectors_are_the_librarys(http: httpx.Client, minilm: SentenceTransformer, ask: Ask) -> None:
    body = ask(http, "/v1/encode/tiny/dense", {"items": items(TEXTS)})
    got = np.stack([item["dense"]["values"] for item in body["items"]])
    assert cosines(got, minilm.encode(TEXTS)).min() >= 0.999
    found = scores(http, ask, "dense")
    expected = minilm.similarity(minilm.encode([QUERY]), minilm.encode(TEXTS))[0]
    np.testing.assert_allclose(found, expected, atol=5e-3)


def test_the_openai_sdk_embeds(own: Server, minilm: SentenceTransformer) -> None:
    with openai.OpenAI(base_url=f"{own.url}/v1", api_key="any", max_retries=0, timeout=280) as client:
        reply = client.embeddings.create(model="tiny/dense", input=TEXTS)  # base64 on the wire
    assert [item.index for item in reply.data] == list(range(len(TEXTS)))
    assert cosines(np.array([item.embedding for item in reply.data]), minilm.encode(TEXTS)).min() >= 0.999
    assert reply.usage.prompt_tokens == sum(map(len, minilm.tokenizer(TEXTS, truncation=True).input_ids))


@both
def test_scores_are_the_librarys_log_odds(http: httpx.Client, labels_path: str, ask: Ask) -> None:
    np.testing.assert_allclose(scores(http, ask, "cross"), log_odds(labels_path), atol=1e-3)


def test_the_cohere_sdk_reranks(own: Server, labels_path: str) -> None:
    client = cohere.ClientV2(api_key="any", base_url=own.url, timeout=280)
    reply = client.rerank(model="tiny/cross", query=QUERY, documents=TEXTS)
    wanted = torch.sigmoid(torch.tensor(log_odds(labels_path))).numpy()
    order = [result.index for result in reply.results]
    np.testing.assert_allclose([result.relevance_score for result in reply.results], wanted[order], atol=1e-3)
    assert sorted(order) == list(range(len(TEXTS)))
    assert np.all(np.diff(wanted[order]) <= 1e-3)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/encode/tiny/cross", {"items": [{"text": "red"}]}, "tiny/cross"),
        ("/v1/encode/tiny/dense", {"items": [{"text": "red"}], "params": {"output_types": ["sparse"]}}, "sparse"),
    ],
)
def test_what_the_model_does_not_do_is_refused_by_name(
    http: httpx.Client, path: str, body: object, message: str
) -> None:
    answer = http.post(path, json=body)
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["detail"]["message"]


def test_a_dead_engine_is_started_anew_and_the_request_answered(own: Server, http: httpx.Client) -> None:
    before = http.post("/v1/embeddings", json={"model": "tiny/dense", "input": "red"}).json()
    engines = [one for one in psutil.Process(own.pid).children(recursive=True) if "VLLM" in " ".join(one.cmdline())]
    assert engines
    for one in engines:
        os.kill(one.pid, signal.SIGKILL)
    answer = http.post("/v1/embeddings", json={"model": "tiny/dense", "input": "red"})
    assert answer.status_code == 200, answer.text
    got = np.array([body["data"][0]["embedding"] for body in (before, answer.json())])
    assert cosines(got[:1], got[1:]).min() > 0.9999


def log_odds(path: str) -> np.ndarray:
    library = CrossEncoder(path, device="cpu")
    logits = library.predict([(QUERY, text) for text in TEXTS], activation_fn=torch.nn.Identity())
    found: np.ndarray = logits[:, 1] - logits[:, 0]
    return found

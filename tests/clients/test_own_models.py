"""A catalog of one's own: a tiny model of every retrieval and extraction engine on the real server, with the library's
own answer beside it, in JSON and in MessagePack."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pybase64
import pytest
import torch
import yaml
from gliner import GLiNER
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from transformers import pipeline

from tests.clients import apart
from tests.engines.extraction import checkpoints as extraction
from tests.engines.extraction.helpers import exact
from tests.engines.retrieval import checkpoints as retrieval
from tests.engines.retrieval.helpers import sentences
from tests.engines.retrieval.test_pictures import data, picture
from tests.handlers.retrieval import sdk
from tests.live import Server, opened

ADAPTERS = "engines.adapters"
QUERY = "capital of france"
TEXTS = [text for text in sentences(14, longest=20) if text]  # rerank takes no blank documents
LABELS = ["animal", "place", "music"]
RELATIONS = ["lives in", "swims in"]
HEADERS = {"content-type": "application/msgpack", "accept": "application/msgpack"}


class Models:
    """The folders of the checkpoints, by kind."""

    def __init__(self, root: Path) -> None:
        backbone = retrieval.backbones(root / "backbone")
        bert = extraction.berts(root / "bert")
        self.paths = {
            "cross": retrieval.cross(backbone, root / "cross"),
            "sparse": retrieval.sparse(backbone, root / "sparse"),
            "late": retrieval.late(backbone, root / "late", expanded=True),
            "clip": retrieval.clip(root / "clip"),
            "gliner": extraction.gliner(bert, root / "gliner", span_mode="markerV0"),
            "relex": extraction.relex(bert, root / "relex"),
            "nli": str(bert["nli"]),
        }
        catalog = root / "catalog"
        catalog.mkdir()
        for name, entry in self.entries().items():
            (catalog / f"{name}.yaml").write_text(yaml.safe_dump(entry))
        self.catalog = catalog

    def entries(self) -> dict[str, dict[str, Any]]:
        encode = {
            "sparse": {"sparse": {"dim": len(retrieval.word_tokenizer())}},
            "late": {"multivector": {"dim": 16}},
            "clip": {"dense": {"dim": 16}},
        }
        adapters = {
            "cross": "retrieval.cross_encoder:CrossEncoderEngine",
            "sparse": "retrieval.sparse_encoder:SparseEncoderEngine",
            "late": "retrieval.multi_vector_encoder:MultiVectorEncoderEngine",
            "clip": "retrieval.sentence_transformer:SentenceTransformerEngine",
            "gliner": "extraction.gliner:GlinerEngine",
            "relex": "extraction.gliner:GlinerEngine",
            "nli": "extraction.nli:NliEngine",
        }
        return {
            name: {
                "sie_id": f"tiny/{name}",
                "source": self.paths[name],
                "inputs": {"text": True, "image": name == "clip"},
                "tasks": self._tasks(name, encode),
                "profiles": {"default": {"adapter_path": f"{ADAPTERS}.{path}", "compute_precision": "float32"}},
            }
            for name, path in adapters.items()
        }

    def _tasks(self, name: str, encode: dict[str, Any]) -> dict[str, Any]:
        if name in ("gliner", "relex", "nli"):
            return {"extract": {}}
        return {"score": {}, **({"encode": encode[name]} if name in encode else {})}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def own(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has loaded nothing yet and knows these models."""
    settings = {"SIE_PRELOAD_MODELS": "", "SIE_MODELS_DIR": str(models.catalog), "SIE_CATALOG_STRICT": "true"}
    with opened(tmp_path_factory.mktemp("own") / "server.log", settings) as running:
        yield running


@pytest.fixture(scope="module")
def http(own: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=own.url, timeout=280) as client:
        yield client


def numbers(value: Any) -> Any:
    """JSON's lists of numbers as the arrays that MessagePack has."""
    if isinstance(value, dict):
        return {key: numbers(member) for key, member in value.items()}
    if isinstance(value, list) and value and not isinstance(value[0], dict | str):
        return np.array(value)
    return [numbers(member) for member in value] if isinstance(value, list) else value


def as_json(http: httpx.Client, path: str, body: Any) -> Any:
    response = http.post(path, content=msgspec.json.encode(body), headers={"content-type": "application/json"})
    assert response.status_code == 200, response.text
    return numbers(json.loads(response.content))


def as_msgpack(http: httpx.Client, path: str, body: Any) -> Any:
    response = http.post(path, content=msgspec.msgpack.encode(body), headers=HEADERS)
    assert response.status_code == 200, response.text
    return sdk.unpack(response.content)


Ask = Callable[[httpx.Client, str, Any], Any]
both = pytest.mark.parametrize("ask", [as_json, as_msgpack])


def items(texts: list[str]) -> list[dict[str, Any]]:
    return [{"id": f"id-{index}", "text": text} for index, text in enumerate(texts)]


def scores(http: httpx.Client, ask: Ask, model: str, query: Any = None, of: Any = None) -> list[float]:
    """Scores in the order of the items; they come ranked."""
    asked = {"query": query or {"text": QUERY}, "items": of or items(TEXTS)}
    found = ask(http, f"/v1/score/tiny/{model}", asked)["scores"]
    ranked = [entry["score"] for entry in found]
    assert ranked == sorted(ranked, reverse=True)
    assert [entry["rank"] for entry in found] == list(range(len(found)))
    return [entry["score"] for entry in sorted(found, key=lambda entry: int(entry["item_id"].removeprefix("id-")))]


@both
def test_a_cross_encoders_scores_are_the_librarys_logits(http: httpx.Client, models: Models, ask: Ask) -> None:
    library = CrossEncoder(models.paths["cross"], device="cpu")
    expected = library.predict([(QUERY, text) for text in TEXTS], activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(scores(http, ask, "cross"), expected, atol=1e-5)


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_reranks_relevance_is_the_librarys_sigmoid(http: httpx.Client, models: Models, path: str) -> None:
    library = CrossEncoder(models.paths["cross"], device="cpu")
    expected = library.predict([(QUERY, text) for text in TEXTS], activation_fn=torch.nn.Sigmoid())
    body = as_json(http, path, {"model": "tiny/cross", "query": QUERY, "documents": TEXTS})
    order = [result["index"] for result in body["results"]]
    relevance = [result["relevance_score"] for result in body["results"]]
    np.testing.assert_allclose(relevance, expected[order], atol=1e-5)
    assert relevance == sorted(relevance, reverse=True)
    assert sorted(order) == list(range(len(TEXTS)))


@both
def test_sparse_vectors_are_the_librarys(http: httpx.Client, models: Models, ask: Ask) -> None:
    expected = SparseEncoder(models.paths["sparse"], device="cpu").encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    body = ask(http, "/v1/encode/tiny/sparse", {"items": items(TEXTS), "params": {"output_types": ["sparse"]}})
    got = np.zeros_like(expected)
    for row, item in zip(got, body["items"], strict=True):
        assert item["sparse"]["dims"] == expected.shape[1]
        row[np.asarray(item["sparse"]["indices"], dtype=int)] = item["sparse"]["values"]
    np.testing.assert_allclose(got, expected, atol=1e-5)


@both
@pytest.mark.parametrize("is_query", [True, False])
def test_token_vectors_are_the_librarys(http: httpx.Client, models: Models, ask: Ask, is_query: bool) -> None:
    library = MultiVectorEncoder(models.paths["late"], device="cpu")
    expected = (library.encode_query if is_query else library.encode_document)(TEXTS)
    params = {"output_types": ["multivector"], "options": {"is_query": is_query}}
    body = ask(http, "/v1/encode/tiny/late", {"items": items(TEXTS), "params": params})
    for item, wanted in zip(body["items"], expected, strict=True):
        assert (item["multivector"]["num_tokens"], item["multivector"]["token_dims"]) == wanted.shape
        np.testing.assert_allclose(np.reshape(item["multivector"]["values"], wanted.shape), wanted.numpy(), atol=1e-5)


@both
def test_late_interactions_scores_are_the_librarys_maxsim(http: httpx.Client, models: Models, ask: Ask) -> None:
    library = MultiVectorEncoder(models.paths["late"], device="cpu")
    expected = library.similarity(library.encode_query([QUERY]), library.encode_document(TEXTS))[0]
    np.testing.assert_allclose(scores(http, ask, "late"), expected, atol=1e-4)


@both
def test_images_and_texts_are_encoded_side_by_side(http: httpx.Client, models: Models, ask: Ask) -> None:
    library = SentenceTransformer(models.paths["clip"], device="cpu")
    shown = [{"id": f"id-{n}", "images": [{"data": data(picture(n)), "format": "png"}]} for n in range(4)]
    broken = [{"id": "broken", "images": [{"data": b"no image"}]}, {"id": "both", **shown[0], "text": "red"}]
    mixed = [*shown[:2], *broken[:1], *items(TEXTS[:3]), *shown[2:]]
    body = ask(http, "/v1/encode/tiny/clip", {"items": mixed})
    # mixed success: the good ones, by their ids
    ids = [item["id"] for item in body["items"]]
    assert ids == ["id-0", "id-1", "id-0", "id-1", "id-2", "id-2", "id-3"], ids
    got = np.stack([item["dense"]["values"] for item in body["items"]])
    images = library.encode([picture(number) for number in range(4)])
    texts = library.encode([{"text": text} for text in TEXTS[:3]])
    np.testing.assert_allclose(got, np.concatenate([images[:2], texts, images[2:]]), atol=1e-5)
    expected = library.similarity(library.encode([QUERY]), images)[0]
    np.testing.assert_allclose(scores(http, ask, "clip", of=shown), expected, atol=1e-5)


def test_images_of_which_none_is_good_are_refused(http: httpx.Client) -> None:
    text = pybase64.b64encode(b"no image").decode()
    response = http.post("/v1/encode/tiny/clip", json={"items": [{"images": [{"data": text}]}] * 2})
    assert (response.status_code, response.json()["detail"]["code"]) == (400, "INVALID_INPUT")


@both
def test_zero_shot_entities_are_the_librarys(http: httpx.Client, models: Models, ask: Ask) -> None:
    library = GLiNER.from_pretrained(models.paths["gliner"]).eval()
    texts = [text for text in TEXTS if len(text.split()) <= 20]
    params = {"labels": LABELS, "options": {"threshold": 0.3}}
    body = ask(http, "/v1/extract/tiny/gliner", {"items": items(texts), "params": params})
    found = 0
    for text, item in zip(texts, body["items"], strict=True):
        wanted = library.inference([text], LABELS, threshold=0.3)[0]
        found += len(wanted)
        assert exact(text, item)
        key = ("start", "end", "label")
        assert sorted(tuple(e[k] for k in key) for e in item["entities"]) == sorted(
            tuple(e[k] for k in key) for e in wanted
        )
    assert found > 0, "the checkpoint finds something"


@both
def test_relations_are_the_librarys(http: httpx.Client, models: Models, ask: Ask) -> None:
    library = GLiNER.from_pretrained(models.paths["relex"]).eval()
    texts = [text for text in TEXTS if 2 <= len(text.split()) <= 20]
    options = {"threshold": 0.3, "relation_labels": RELATIONS, "relation_threshold": 0.3}
    body = ask(
        http, "/v1/extract/tiny/relex", {"items": items(texts), "params": {"labels": LABELS, "options": options}}
    )
    found = 0
    for text, item in zip(texts, body["items"], strict=True):
        _, relations = library.inference(
            [text], LABELS, relations=RELATIONS, threshold=0.3, relation_threshold=0.3, return_relations=True
        )
        wanted = [(r["head"]["text"], r["tail"]["text"], r["relation"]) for r in relations[0]]
        found += len(wanted)
        assert sorted((r["head"], r["tail"], r["relation"]) for r in item["relations"]) == sorted(wanted)
    assert found > 0, "the checkpoint finds something"


@both
def test_zero_shot_classes_are_the_librarys(http: httpx.Client, models: Models, ask: Ask) -> None:
    library = pipeline("zero-shot-classification", model=models.paths["nli"], device="cpu")
    labels = ["music", "fish", "capital city"]  # words that the model knows
    body = ask(http, "/v1/extract/tiny/nli", {"items": items(TEXTS[:6]), "params": {"labels": labels}})
    for text, item in zip(TEXTS[:6], body["items"], strict=True):
        wanted = library(text, labels)
        assert [one["label"] for one in item["classifications"]] == wanted["labels"]
        np.testing.assert_allclose([one["score"] for one in item["classifications"]], wanted["scores"], atol=1e-5)


@pytest.mark.parametrize("release", ["sie-sdk-0.6.26", "sie-sdk-0.10.1"])
def test_the_official_sdk_on_every_model(own: Server, release: str) -> None:
    apart.run("sie_models", release, own.url)

"""Answers of the engines equal those of the library's own classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder

from tests.engines.retrieval.helpers import MINILM, OpenEngine, array, cosines, encode, score, sentences

EXACT = {"compute_precision": "float32"}


async def test_dense_float32_equals_the_library(open_engine: OpenEngine, minilm: SentenceTransformer) -> None:
    texts = sentences(40)
    async with open_engine("sentence_transformer", MINILM, dims={"dense": 384}, **EXACT) as run:
        got = array((await run(encode(texts))).output.dense)
    np.testing.assert_allclose(got, minilm.encode(texts), atol=1e-5)


async def test_dense_in_the_default_precision_is_close(open_engine: OpenEngine, minilm: SentenceTransformer) -> None:
    texts = sentences(40, seed=1)
    async with open_engine("sentence_transformer", MINILM, dims={"dense": 384}) as run:
        got = array((await run(encode(texts))).output.dense)
    assert cosines(got, minilm.encode(texts)).min() >= 0.999


async def test_token_vectors_are_the_librarys_made_unit(open_engine: OpenEngine, minilm: SentenceTransformer) -> None:
    texts = sentences(12)
    dims = {"dense": 384, "multivector": 384}
    async with open_engine("sentence_transformer", MINILM, dims=dims, **EXACT) as run:
        output = (await run(encode(texts, output_types=("dense", "multivector")))).output
    np.testing.assert_allclose(array(output.dense), minilm.encode(texts), atol=1e-5)
    expected = minilm.encode(texts, output_value="token_embeddings", normalize_embeddings=False)
    for got, wanted in zip(output.multivector, expected, strict=True):
        unit = torch.nn.functional.normalize(wanted, dim=-1).numpy()
        np.testing.assert_allclose(array(got), unit, atol=1e-5)


async def test_similarity_is_the_cosine_of_the_librarys_vectors(
    open_engine: OpenEngine, minilm: SentenceTransformer
) -> None:
    texts = sentences(20)
    async with open_engine("sentence_transformer", MINILM, dims={"dense": 384}, **EXACT) as run:
        output = (await run(score("capital of france", texts))).output
    expected = minilm.similarity(minilm.encode("capital of france"), minilm.encode(texts))[0]
    assert output.kind == "similarity"
    np.testing.assert_allclose(output.scores, expected, atol=1e-5)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.15)])
async def test_logits_equal_the_librarys(
    open_engine: OpenEngine, cross_path: str, precision: str, tolerance: float
) -> None:
    texts = sentences(30, longest=20)
    library = CrossEncoder(cross_path, device="cpu")
    expected = library.predict([("capital of france", text) for text in texts], activation_fn=torch.nn.Identity())
    async with open_engine("cross_encoder", cross_path, compute_precision=precision) as run:
        output = (await run(score("capital of france", texts))).output
    assert output.kind == "logit"
    assert np.ptp(expected) > 0.5, "the checkpoint tells texts apart"
    np.testing.assert_allclose(output.scores, expected, atol=tolerance)


async def test_two_labels_give_the_log_odds_of_the_second(open_engine: OpenEngine, backbone: dict[str, Any]) -> None:
    path = str(backbone["labels"])
    texts = sentences(10, longest=20)
    library = CrossEncoder(path, device="cpu")
    logits = library.predict([("red cat", text) for text in texts], activation_fn=torch.nn.Identity())
    async with open_engine("cross_encoder", path, **EXACT) as run:
        scores = (await run(score("red cat", texts))).output.scores
    np.testing.assert_allclose(scores, logits[:, 1] - logits[:, 0], atol=1e-5)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.15)])
async def test_sparse_vectors_equal_the_librarys(
    open_engine: OpenEngine, sparse_path: str, precision: str, tolerance: float
) -> None:
    texts = sentences(30)
    expected = SparseEncoder(sparse_path, device="cpu").encode(texts, convert_to_sparse_tensor=False).numpy()
    dims = expected.shape[1]
    async with open_engine("sparse_encoder", sparse_path, dims={"sparse": dims}, compute_precision=precision) as run:
        output = (await run(encode(texts, output_types=("sparse",)))).output
    got = np.zeros_like(expected)
    for row, vector in zip(got, output.sparse, strict=True):
        indices = array(vector.indices)
        assert indices.dtype == np.int32
        assert (np.diff(indices) > 0).all()
        assert (array(vector.values) > 0).all()
        assert vector.dims == dims
        row[indices] = array(vector.values)
    np.testing.assert_allclose(got, expected, atol=tolerance)


async def test_sparse_scores_are_cosines(open_engine: OpenEngine, sparse_path: str) -> None:
    texts = sentences(10)
    library = SparseEncoder(sparse_path, device="cpu", similarity_fn_name="cosine")
    expected = library.similarity(library.encode(["red cat"]), library.encode(texts))[0]
    dims = {"sparse": library.get_embedding_dimension()}
    async with open_engine("sparse_encoder", sparse_path, dims=dims, **EXACT) as run:
        output = (await run(score("red cat", texts))).output
    np.testing.assert_allclose(output.scores, expected.to_dense(), atol=1e-5)


@pytest.mark.parametrize("side", ["query", "document"])
async def test_late_interaction_vectors_equal_the_librarys(open_engine: OpenEngine, multi_path: str, side: str) -> None:
    texts = sentences(20, longest=15)
    library = MultiVectorEncoder(multi_path, device="cpu")
    expected = (library.encode_query if side == "query" else library.encode_document)(texts)
    async with open_engine("multi_vector_encoder", multi_path, dims={"multivector": 16}, **EXACT) as run:
        work = encode(texts, output_types=("multivector",), is_query=side == "query")
        output = (await run(work)).output
    assert output.token_dims == 16
    for got, wanted in zip(output.multivector, expected, strict=True):
        np.testing.assert_allclose(array(got), wanted.numpy(), atol=1e-5)


async def test_maxsim_equals_the_librarys(open_engine: OpenEngine, multi_path: str) -> None:
    texts = sentences(20, longest=15)
    library = MultiVectorEncoder(multi_path, device="cpu")
    expected = library.similarity(library.encode_query(["red cat"]), library.encode_document(texts))[0]
    async with open_engine("multi_vector_encoder", multi_path, dims={"multivector": 16}, **EXACT) as run:
        output = (await run(score("red cat", texts))).output
    assert output.kind == "maxsim"
    np.testing.assert_allclose(output.scores, expected, atol=1e-4)

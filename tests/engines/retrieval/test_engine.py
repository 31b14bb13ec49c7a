"""What the engines do with requests: limits, instructions, faults, counts, many callers at once."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from engines.adapters.base import EngineDead, EngineLoadError, WorkError
from engines.adapters.retrieval.lean import LeanEncoder
from engines.adapters.retrieval.runner import Runner
from engines.adapters.retrieval.sentence_transformer import DenseRunner
from engines.protocol.work import EncodeWork, GenerateWork, Image, Item, Sampling, ScoreWork
from tests.engines.retrieval import checkpoints
from tests.engines.retrieval.helpers import MINILM, OpenEngine, array, cosines, encode, score, sentences

EXACT = {"compute_precision": "float32"}
DENSE = {"dims": {"dense": 384}}


@pytest.fixture(scope="session")
def dense_path(backbone: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny dense model with prompts."""
    path = tmp_path_factory.mktemp("dense")
    modules = [Transformer(str(backbone["plain"])), Pooling(32, "mean"), Normalize()]
    prompts = {"query": "red ", "document": "blue ", "other": "sun "}
    model = SentenceTransformer(modules=modules, prompts=prompts, default_prompt_name="other", device="cpu")
    model.save_pretrained(str(path))
    return str(path)


async def dense(run: Any, texts: list[str], **fields: Any) -> Any:
    return array((await run(encode(texts, **fields))).output.dense)


async def test_many_callers_at_once_get_their_own_answers(open_engine: OpenEngine, minilm: SentenceTransformer) -> None:
    requests = [sentences(3 + 5 * (i % 3), seed=i) for i in range(24)]
    async with open_engine("sentence_transformer", MINILM, **DENSE, **EXACT) as run:
        found = await asyncio.gather(*(dense(run, texts) for texts in requests))
    for texts, got in zip(requests, found, strict=True):
        np.testing.assert_allclose(got, minilm.encode(texts), atol=1e-5)


async def test_usage_counts_with_the_models_tokenizer(open_engine: OpenEngine, minilm: SentenceTransformer) -> None:
    texts = ["The quick brown fox", "", "wörd " * 1000]
    async with open_engine("sentence_transformer", MINILM, **DENSE, max_sequence_length=100) as run:
        reply = await run(encode(texts))
    tokenizer = minilm.tokenizer
    expected = sum(len(tokenizer(text, truncation=True, max_length=100)["input_ids"]) for text in texts)
    assert reply.usage.prompt_tokens == expected
    assert reply.events == ["admitted", "completed"]
    parts = reply.timing
    assert parts.total_ms == pytest.approx(
        parts.queue_ms + parts.tokenization_ms + parts.inference_ms + parts.postprocessing_ms, abs=0.01
    )
    assert parts.inference_ms > 0


async def test_long_texts_are_cut_at_the_entrys_tokens(open_engine: OpenEngine, minilm_path: str) -> None:
    library = SentenceTransformer(minilm_path, device="cpu")
    library.max_seq_length = 24
    texts = [" ".join(f"word{i}" for i in range(300)), "short"]
    async with open_engine("sentence_transformer", MINILM, **DENSE, **EXACT, max_sequence_length=24) as run:
        np.testing.assert_allclose(await dense(run, texts), library.encode(texts), atol=1e-5)


async def test_an_item_without_text_fails_alone(open_engine: OpenEngine, minilm: SentenceTransformer) -> None:
    items = [Item(text="red"), Item(images=[Image(b"png")]), Item(text="blue"), Item()]
    async with open_engine("sentence_transformer", MINILM, dims={"dense": 384, "multivector": 384}, **EXACT) as run:
        work = EncodeWork(request_id="r", model="tested", items=items, output_types=("dense", "multivector"))
        output = (await run(work)).output
    assert {index: error.code for index, error in output.errors.items()} == {1: "INVALID_INPUT", 3: "INVALID_INPUT"}
    assert [vectors is None for vectors in output.multivector] == [False, True, False, True]
    vectors = array(output.dense)
    assert vectors.shape == (4, 384)
    np.testing.assert_allclose(vectors[[0, 2]], minilm.encode(["red", "blue"]), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "binary"])
async def test_numbers_that_are_not_finite_are_an_error_of_their_item(
    open_engine: OpenEngine, minilm: SentenceTransformer, monkeypatch: pytest.MonkeyPatch, dtype: Any
) -> None:
    whole = DenseRunner.split

    def broken(self: DenseRunner, output: Any, count: int) -> Any:
        rows = [row.copy() for row in whole(self, output, count)]
        return [np.where(np.arange(384) == 7, np.nan, row) if abs(row[0]) == mark else row for row in rows]

    async with open_engine("sentence_transformer", MINILM, **DENSE, **EXACT) as run:
        mark = abs((await dense(run, ["b"]))[0][0])
        monkeypatch.setattr(DenseRunner, "split", broken)
        reply = await run(encode(["a", "b", "c"], output_dtype=dtype))
        assert {index: error.code for index, error in reply.output.errors.items()} == {1: "inference_error"}
        with pytest.raises(WorkError, match="not finite") as failed:
            await run(score("a", ["b", "c"]))
    assert (failed.value.code, failed.value.param) == ("inference_error", "items[0]")


async def test_items_all_without_text_are_all_errors(open_engine: OpenEngine) -> None:
    async with open_engine("sentence_transformer", MINILM, **DENSE) as run:
        reply = await run(EncodeWork(request_id="r", model="tested", items=[Item(), Item()]))
    assert sorted(reply.output.errors) == [0, 1]
    assert reply.usage.prompt_tokens == 0


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "binary"])
async def test_output_dtypes_of_dense_and_token_vectors(open_engine: OpenEngine, dtype: str) -> None:
    types = {"float16": ("<f2", 384), "int8": ("|i1", 384), "uint8": ("|u1", 384), "binary": ("|u1", 48)}
    async with open_engine("sentence_transformer", MINILM, dims={"dense": 384, "multivector": 384}) as run:
        work = encode(["red cat", "sun"], output_types=("dense", "multivector"), output_dtype=dtype)
        output = (await run(work)).output
    name, width = types[dtype]
    assert output.output_dtype == dtype
    assert (output.dense.dtype, output.dense.shape) == (name, (2, width))
    assert [(tensor.dtype, tensor.shape[1]) for tensor in output.multivector] == [(name, width)] * 2
    assert (output.dense_dims, output.token_dims) == (384, 384)


async def test_prompts_of_the_checkpoint_by_side(open_engine: OpenEngine, dense_path: str) -> None:
    library = SentenceTransformer(dense_path, device="cpu")
    texts = sentences(8, longest=10)
    expected = {True: library.encode_query(texts), False: library.encode_document(texts), None: library.encode(texts)}
    async with open_engine("sentence_transformer", dense_path, dims={"dense": 32}, **EXACT) as run:
        for is_query, wanted in expected.items():
            np.testing.assert_allclose(await dense(run, texts, is_query=is_query), wanted, atol=1e-5)
    assert np.abs(expected[True] - expected[False]).max() > 0.01


async def test_templates_and_instructions(open_engine: OpenEngine, dense_path: str) -> None:
    library = SentenceTransformer(dense_path, device="cpu")
    runtime = {
        "query_template": "city {instruction} is {text}",
        "default_instruction": "dog",
        "doc_template": "of {text}",
    }
    cases: list[tuple[dict[str, Any], str]] = [
        ({"is_query": True}, "city dog is {instruction} cat"),
        ({"is_query": True, "instruction": "moon"}, "city moon is {instruction} cat"),
        ({"is_query": True, "instruction": "{text}"}, "city {text} is {instruction} cat"),
        ({"is_query": False}, "of {instruction} cat"),
        ({}, "of {instruction} cat"),
        ({"instruction": "moon"}, "moon {instruction} cat"),
    ]
    async with open_engine("sentence_transformer", dense_path, dims={"dense": 32}, **EXACT, runtime=runtime) as run:
        for fields, text in cases:
            got = await dense(run, ["{instruction} cat"], **fields)
            np.testing.assert_allclose(got, library.encode([text], prompt=""), atol=1e-5, err_msg=str(fields))


async def test_fewer_dimensions_of_the_entry_cut_and_normalise(open_engine: OpenEngine, dense_path: str) -> None:
    library = SentenceTransformer(dense_path, device="cpu")
    wanted = library.encode(["red cat"], truncate_dim=8, normalize_embeddings=True)
    async with open_engine("sentence_transformer", dense_path, dims={"dense": 8}, **EXACT) as run:
        np.testing.assert_allclose(await dense(run, ["red cat"]), wanted, atol=1e-5)


async def test_the_profiles_pooling_goes_first(open_engine: OpenEngine, backbone: dict[str, Any]) -> None:
    modules = [Transformer(str(backbone["plain"])), Pooling(32, "cls")]
    wanted = SentenceTransformer(modules=modules, device="cpu").encode(["red cat"])
    runtime = {"pooling": "cls", "normalize": False}
    async with open_engine(
        "sentence_transformer", str(backbone["plain"]), dims={"dense": 32}, **EXACT, runtime=runtime
    ) as run:
        np.testing.assert_allclose(await dense(run, ["red cat"]), wanted, atol=1e-5)


async def test_without_normalisation_when_the_profile_says_so(open_engine: OpenEngine, dense_path: str) -> None:
    async with open_engine(
        "sentence_transformer", dense_path, dims={"dense": 32}, **EXACT, runtime={"normalize": False}
    ) as run:
        got = await dense(run, ["red cat"])
    wanted = SentenceTransformer(dense_path, device="cpu").encode(["red cat"])
    assert abs(np.linalg.norm(got) - 1) > 0.01
    np.testing.assert_allclose(cosines(got, wanted), 1, atol=1e-5)


async def test_scoring_cuts_documents_and_never_the_query(open_engine: OpenEngine, cross_path: str) -> None:
    query = "capital of france is the city paris to"
    words = ["cat", "dog", "sun", "moon", "fish", "music", "river", "city", "engine", "red", "green", "blue"]
    # limit 20 = 3 special tokens, 8 of the query, 9 of the document
    library = CrossEncoder(cross_path, device="cpu")
    wanted = library.predict([(query, " ".join(words[:9]))], activation_fn=torch.nn.Identity())
    async with open_engine("cross_encoder", cross_path, **EXACT) as run:
        reply = await run(score(query, [" ".join(words)], max_sequence_length=20))
        np.testing.assert_allclose(reply.output.scores, wanted, atol=1e-5)
        assert reply.usage.prompt_tokens == 20
        full = (await run(score(query, [" ".join(words)]))).output.scores
        assert abs(full[0] - wanted[0]) > 1e-3
        with pytest.raises(WorkError) as refused:
            await run(score(query, ["cat"], max_sequence_length=11))
        assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "options.max_seq_length")
        with pytest.raises(WorkError) as refused:
            await run(score(" ".join(["cat"] * 80), ["cat"], max_sequence_length=5000))
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "query")


@pytest.mark.parametrize(
    ("limits", "cap", "kept"),
    [
        ({"query_max_length": 3}, None, (3, 12)),
        ({"doc_max_length": 5}, None, (8, 5)),
        ({"query_max_length": 3, "doc_max_length": 5}, None, (3, 5)),
        ({"query_max_length": 3, "doc_max_length": 5}, 10, (3, 4)),  # 3 special tokens
        ({"query_max_length": 30, "doc_max_length": 30}, None, (8, 12)),
    ],
)
async def test_either_part_of_a_pair_is_cut_to_the_profiles_tokens(
    open_engine: OpenEngine, cross_path: str, limits: dict[str, int], cap: int | None, kept: tuple[int, int]
) -> None:
    query = ["capital", "of", "france", "is", "the", "city", "paris", "to"]
    words = ["cat", "dog", "sun", "moon", "fish", "music", "river", "city", "engine", "red", "green", "blue"]
    library = CrossEncoder(cross_path, device="cpu")
    pair = (" ".join(query[: kept[0]]), " ".join(words[: kept[1]]))
    wanted = library.predict([pair], activation_fn=torch.nn.Identity())
    async with open_engine("cross_encoder", cross_path, **EXACT, loadtime=limits) as run:
        reply = await run(score(" ".join(query), [" ".join(words)], max_sequence_length=cap))
    np.testing.assert_allclose(reply.output.scores, wanted, atol=1e-5)
    assert reply.usage.prompt_tokens == 3 + sum(kept)


async def test_limits_of_a_pair_are_refused_where_the_library_makes_its_tokens(
    open_engine: OpenEngine, cross_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, "_can_be_direct", lambda self: False)
    with pytest.raises(EngineLoadError, match="query_max_length") as refused:
        async with open_engine("cross_encoder", cross_path, loadtime={"query_max_length": 3}):
            pass
    assert refused.value.permanent


# [CLS] document [SEP]; with a pair also the query's two tokens and one more [SEP]
LEAST = {"sentence_transformer": 3, "cross_encoder": 6, "multi_vector_encoder": 3, "sparse_encoder": 3}


@pytest.mark.parametrize("kind", LEAST)
async def test_a_cap_that_leaves_a_document_no_token_is_refused(
    open_engine: OpenEngine, backbone: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    make = {
        "cross_encoder": checkpoints.cross,
        "sparse_encoder": checkpoints.sparse,
        "multi_vector_encoder": partial(checkpoints.late, expanded=False),
        "sentence_transformer": lambda backbones, _path: str(backbones["plain"]),
    }[kind]
    dims = {"dense": 32, "multivector": 16, "sparse": 28}
    async with open_engine(kind, make(backbone, tmp_path), dims=dims) as run:
        for cap in range(1, 9):
            work = score("red cat", [" ".join(["sun"] * 500)], max_sequence_length=cap)
            if cap < LEAST[kind]:
                with pytest.raises(WorkError, match="max_seq_length") as refused:
                    await run(work)
                assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "options.max_seq_length")
            else:
                query = 0 if kind == "cross_encoder" else 4
                assert (await run(work)).usage.prompt_tokens == query + cap


async def test_similarity_cuts_documents_and_never_the_query(open_engine: OpenEngine, dense_path: str) -> None:
    query, words = "capital of france is the city paris", ["cat", "dog", "sun", "moon", "fish", "music"]
    async with open_engine("sentence_transformer", dense_path, dims={"dense": 32}, **EXACT) as run:
        cut = (await run(score(query, [" ".join(words)], max_sequence_length=5))).output.scores
        same = (await run(score(query, [" ".join(words[:2])]))).output.scores
    np.testing.assert_allclose(cut, same, atol=1e-6)  # 5 tokens: two special, the prompt's one, two words


async def test_late_interaction_cuts_documents(open_engine: OpenEngine, multi_path: str) -> None:
    words = ["cat", "dog", "sun", "moon", "fish", "music"]
    library = MultiVectorEncoder(multi_path, device="cpu")
    kept = 5 - 2 - len(library.prompts["document"].split() if library.prompts.get("document") else [])
    async with open_engine("multi_vector_encoder", multi_path, dims={"multivector": 16}, **EXACT) as run:
        cut = (await run(score("red cat", [" ".join(words)], max_sequence_length=5))).output.scores
        same = (await run(score("red cat", [" ".join(words[:kept])]))).output.scores
    np.testing.assert_allclose(cut, same, atol=1e-5)


async def test_score_usage_counts_query_and_documents(open_engine: OpenEngine, cross_path: str) -> None:
    async with open_engine("cross_encoder", cross_path) as run:
        reply = await run(score("red cat", ["dog", "sun moon"]))
    assert reply.usage.prompt_tokens == (3 + 2 + 1) + (3 + 2 + 2)


async def test_a_score_item_without_text_fails_the_call(open_engine: OpenEngine, cross_path: str) -> None:
    work = ScoreWork(request_id="r", model="tested", query=Item(text="cat"), items=[Item(text="dog"), Item()])
    async with open_engine("cross_encoder", cross_path) as run:
        with pytest.raises(WorkError) as refused:
            await run(work)
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "items[1]")


async def test_what_the_model_does_not_do_is_refused(
    open_engine: OpenEngine, sparse_path: str, cross_path: str
) -> None:
    async with open_engine("sparse_encoder", sparse_path, dims={"sparse": 30522}) as run:
        with pytest.raises(WorkError, match="no dense output"):
            await run(encode(["red"], output_types=("dense",)))
        with pytest.raises(WorkError, match="GenerateWork"):
            await run(GenerateWork(request_id="r", model="tested", prompt="red", sampling=Sampling(max_tokens=1)))
    async with open_engine("cross_encoder", cross_path) as run:
        with pytest.raises(WorkError, match="no dense output"):
            await run(encode(["red"]))


async def test_too_much_work_is_refused_with_a_time_to_retry(open_engine: OpenEngine) -> None:
    loadtime = {"max_pending_tokens": 100}
    async with open_engine("sentence_transformer", MINILM, **DENSE, loadtime=loadtime) as run:
        first = asyncio.create_task(run(encode(["red cat and blue dog " * 50] * 20)))
        await asyncio.sleep(0)
        assert run.engine.status().pending_cost > 100
        with pytest.raises(WorkError) as refused:
            await run(encode(["late"]))
        assert refused.value.code == "RESOURCE_EXHAUSTED"
        assert refused.value.retry_after is not None
        assert refused.value.retry_after >= 1
        await first
        assert run.engine.status().pending_cost == 0
        assert (await run(encode(["late"]))).output.dense.shape == (1, 384)


async def test_a_cancelled_request_leaves_nothing_behind(open_engine: OpenEngine) -> None:
    async with open_engine("sentence_transformer", MINILM, **DENSE) as run:
        task = asyncio.create_task(run(encode(["red cat and blue dog " * 50] * 500)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        status = run.engine.status()
        assert (status.queue_depth, status.pending_cost) == (0, 0)
        assert (await run(encode(["next"]))).output.dense.shape == (1, 384)


async def test_closing_frees_threads_and_refuses_later_work(open_engine: OpenEngine, cross_path: str) -> None:
    before = set(threading.enumerate())
    async with open_engine("cross_encoder", cross_path) as run:
        await run(score("red", ["cat"]))
        assert run.engine.status().memory_bytes > 0
    assert not [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("tested")]


async def test_a_dead_engine_says_so(open_engine: OpenEngine, cross_path: str) -> None:
    async with open_engine("cross_encoder", cross_path) as run:
        run.engine.runner.is_out_of_memory = None  # its next fault breaks the thread itself
        run.engine.runner.results = None
        with pytest.raises(EngineDead):
            await run(score("red", ["cat"]))


@pytest.mark.parametrize(
    ("kind", "source", "fields"),
    [
        ("sentence_transformer", "package:no-such-package", {}),
        ("sentence_transformer", "/no/such/folder", {}),
        ("cross_encoder", MINILM, {"compute_precision": "float12"}),
        ("sentence_transformer", MINILM, {"dims": {"dense": 385}}),
        ("sentence_transformer", MINILM, {"runtime": {"pooling": "median"}}),
    ],
)
async def test_what_cannot_be_loaded_says_why_and_that_it_is_final(
    open_engine: OpenEngine, kind: str, source: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(EngineLoadError) as failed:
        async with open_engine(kind, source, **fields):
            pass
    assert failed.value.permanent
    assert str(failed.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [(9,), (30, 7, 1), (4, 4)])
async def test_the_lean_encoder_gives_the_librarys_numbers(
    open_engine: OpenEngine, minilm_path: str, dtype: torch.dtype, lengths: tuple[int, ...]
) -> None:
    library = SentenceTransformer(minilm_path, device="cpu", model_kwargs={"dtype": dtype})[0].model
    precision = str(dtype).removeprefix("torch.")
    ids = torch.randint(1000, 20000, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(max(lengths)).expand_as(ids) < torch.tensor(lengths)[:, None]
    features = {"input_ids": ids, "attention_mask": mask.long()}
    async with open_engine("sentence_transformer", MINILM, **DENSE, compute_precision=precision) as run:
        ours = run.engine.runner.model[0].model
        assert isinstance(ours.encoder, LeanEncoder) == (ours.device.type == "cpu")
        with torch.inference_mode():
            got, wanted = ours(**features), library.to(ours.device)(**features)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.03}[ours.dtype if dtype != torch.float32 else dtype]
    for field in ("last_hidden_state", "pooler_output"):
        a, b = got[field].float(), wanted[field].float()
        if field == "last_hidden_state":
            a, b = a[mask], b[mask]
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("work", [encode(["a"], options={"lora": "legal"}), score("a", ["b"], options={"top": 1})])
async def test_an_option_that_means_nothing_is_refused_by_name(open_engine: OpenEngine, work: Any) -> None:
    async with open_engine("sentence_transformer", MINILM, dims={"dense": 384}) as run:
        with pytest.raises(WorkError, match=r"options\.(lora|top) is no option"):
            await run(work)

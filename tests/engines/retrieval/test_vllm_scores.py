"""Scores by vLLM's pooling runner are a cross-encoder's logits; what it would do unlike the library is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch
from sentence_transformers import CrossEncoder

from engines.adapters.base import Engine, EngineLoadError, WorkError
from engines.adapters.retrieval.texts import Templates
from engines.adapters.vllm.options import pooling_args
from engines.adapters.vllm.pooling import checkpoint
from engines.protocol.catalog import ModelEntry, Profile
from engines.protocol.work import Item, ScoreWork
from tests.engines.retrieval import checkpoints
from tests.engines.retrieval.helpers import Recorder, encode, pooling_engine, score, sentences

QUERY = "capital of france"


@pytest.fixture(scope="module")
def labels_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random cross-encoder with two labels, its heads of attention as wide as vLLM's kernels need them."""
    paths = checkpoints.backbones(tmp_path_factory.mktemp("wide"), hidden_size=64)
    return str(paths["labels"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(labels_path: str) -> AsyncIterator[Engine]:
    made = pooling_engine(labels_path, tasks=("score",), dims={}, compute_precision="float32")
    await made.load()
    yield made
    await made.close()


def expected(path: str, query: str, texts: list[str]) -> Any:
    """The library's log-odds of the second label."""
    library = CrossEncoder(path, device="cpu")
    logits = library.predict([(query, text) for text in texts], activation_fn=torch.nn.Identity())
    return logits[:, 1] - logits[:, 0]


@pytest.mark.asyncio(loop_scope="module")
async def test_logits_are_the_librarys(engine: Engine, labels_path: str) -> None:
    texts = sentences(30, longest=20)
    reply = Recorder()
    await engine.run(score(QUERY, texts), reply)
    wanted = expected(labels_path, QUERY, texts)
    assert reply.output.kind == "logit"
    assert np.ptp(wanted) > 0.5, "the checkpoint tells texts apart"
    np.testing.assert_allclose(reply.output.scores, wanted, atol=1e-3)
    assert reply.usage.prompt_tokens > 30 * 6


@pytest.mark.asyncio(loop_scope="module")
async def test_the_document_is_cut_and_never_the_query(engine: Engine, labels_path: str) -> None:
    query, document = " ".join(["capital"] * 10), " ".join(["red", "blue", "cat", "sun"] * 8)
    reply = Recorder()
    await engine.run(score(query, [document], max_sequence_length=16), reply)
    np.testing.assert_allclose(reply.output.scores, expected(labels_path, query, ["red blue cat"]), atol=1e-3)
    assert reply.usage.prompt_tokens == 16
    with pytest.raises(WorkError, match="leaves no room") as error:
        await engine.run(score(query, [document], max_sequence_length=12), Recorder())
    assert error.value.param == "options.max_seq_length"


@pytest.mark.asyncio(loop_scope="module")
async def test_either_part_of_a_pair_is_cut_to_the_profiles_tokens(
    engine: Engine, labels_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"query_max_length": 2, "doc_max_length": 5}
    profile = Profile(name="default", engine="vllm_pooling", adapter_path="tests", source="m", loadtime=limits)
    monkeypatch.setattr(engine, "_templates", Templates(profile, {}, None))
    document = "red blue cat sun moon fish music"
    for cap, kept in ((None, "red blue cat sun moon"), (8, "red blue cat")):
        reply = Recorder()
        await engine.run(score(QUERY, [document], max_sequence_length=cap), reply)
        np.testing.assert_allclose(reply.output.scores, expected(labels_path, "capital of", [kept]), atol=1e-3)
        assert reply.usage.prompt_tokens == 3 + 2 + len(kept.split())


@pytest.mark.asyncio(loop_scope="module")
async def test_vectors_and_items_without_text_are_refused(engine: Engine) -> None:
    with pytest.raises(WorkError, match="has no dense output"):
        await engine.run(encode(["red"]), Recorder())
    work = ScoreWork(request_id="r", model="tested", query=Item(text="a"), items=[Item(text="b"), Item()])
    with pytest.raises(WorkError, match="no text") as error:
        await engine.run(work, Recorder())
    assert error.value.param == "items[1]"


def folder(root: Path, modules: list[str], pooling: dict[str, Any], transformer: dict[str, Any]) -> str:
    """The files of a checkpoint beside its weights."""
    listed = [{"type": kind, "path": "" if kind.endswith("Transformer") else kind[-7:]} for kind in modules]
    (root / "modules.json").write_text(json.dumps(listed))
    (root / "sentence_bert_config.json").write_text(json.dumps(transformer))
    (root / "Pooling").mkdir()
    (root / "Pooling" / "config.json").write_text(json.dumps(pooling))
    return str(root)


PARTS = ["sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling"]
LAST = {"pooling_mode_cls_token": False, "pooling_mode_lasttoken": True}


def test_pooling_limits_and_prompts_are_read_from_the_files(tmp_path: Path) -> None:
    parts = [*PARTS, "sentence_transformers.base.modules.normalize.Normalize"]
    model = folder(tmp_path, parts, LAST, {"max_seq_length": 77, "do_lower_case": True})
    prompts = {"prompts": {"query": "q: "}, "default_prompt_name": "query"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    found = checkpoint.read(model, None, {})
    assert found == checkpoint.Checkpoint("LAST", True, True, 77, {"query": "q: "}, "query")
    assert checkpoint.read(model, None, {"pooling": "cls"}).pooling == "CLS"


@pytest.mark.parametrize(
    ("modules", "pooling", "transformer", "reason"),
    [
        ([*PARTS, "sentence_transformers.models.WordWeights"], LAST, {}, "module WordWeights"),
        (PARTS, {"pooling_mode_max_tokens": True}, {}, "pooling 'max'"),
        (PARTS, {"pooling_mode": ["cls", "mean"]}, {}, r"pooling 'cls\+mean'"),
        (PARTS, {"pooling_mode": "mean", "include_prompt": False}, {}, "without the prompt's tokens"),
        (PARTS, LAST, {"processing_kwargs": {"text": {"padding": True}}}, "its processing_kwargs"),
        (PARTS, LAST, {"modality_config": {"message": {}}}, "its chat template"),
    ],
)
def test_what_vllm_would_leave_out_in_silence_is_refused(
    tmp_path: Path, modules: list[str], pooling: dict[str, Any], transformer: dict[str, Any], reason: str
) -> None:
    with pytest.raises(EngineLoadError, match=reason) as error:
        checkpoint.read(folder(tmp_path, modules, pooling, transformer), None, {})
    assert error.value.permanent


@pytest.mark.parametrize(
    ("tasks", "dims", "does", "reason"),
    [
        (("encode",), {"dense": 8}, ("classify",), "gives no vectors"),
        (("score",), {}, ("token_embed",), "gives no scores"),
        (("score",), {}, ("classify",), "3 labels are a classification"),
        (("encode",), {"dense": 16}, ("embed",), "16 dimensions, the model has 8"),
    ],
)
def test_a_model_that_is_not_what_its_entry_says_is_refused(
    tasks: tuple[Any, ...], dims: dict[str, int], does: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(EngineLoadError, match=reason):
        checkpoint.check(ModelEntry(name="tested", tasks=tasks, dims=dims), does, width=8, labels=3)


@pytest.mark.parametrize("option", ["tool_call_parser", "lora_paths", "limit_mm_per_prompt"])
def test_an_option_that_means_nothing_where_a_model_pools_is_refused(option: str) -> None:
    profile = Profile(name="default", engine="vllm_pooling", adapter_path="tests", source="m", loadtime={option: "x"})
    with pytest.raises(EngineLoadError, match=option):
        pooling_args(ModelEntry(name="tested"), profile, "m", "MEAN")

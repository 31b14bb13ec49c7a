"""Options of a profile: what an engine has nothing for stops its load, by name; what is true of the model does not."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from transformers import Qwen2Config, Qwen2Model

from engines.adapters.base import EngineLoadError
from engines.catalog.fields import LOADTIME, RUNTIME
from tests.engines.retrieval import checkpoints
from tests.engines.retrieval.helpers import MINILM, WORDS, OpenEngine, encode, score

KINDS = ("sentence_transformer", "cross_encoder", "sparse_encoder", "multi_vector_encoder")
DIMS = {"dense": 32, "multivector": 16, "sparse": 28}

READ = {
    "trust_remote_code": True,
    "attn_implementation": "sdpa",
    "config_kwargs": {"use_cache": False},
    "max_seq_length": 60,
    "max_pending_tokens": 1000,
    "query_prefix": "red ",
    "doc_prefix": "blue ",
    "query_max_length": 40,
    "doc_max_length": 40,
    "default_instruction": "find",
    "instruction": "find",
    "query_template": "{text}",
    "doc_template": "{text}",
    "output_types": ["dense"],
    "output_dtype": "float32",
    "max_concurrent_requests": 8,
    "memory_footprint_bytes": 1 << 20,
    "served_model_name": "name",
    "mem_fraction_static": 0.5,
    "disable_cuda_graph": True,
    "attention_backend": "triton",
    "muvera_config": {"num_repetitions": 10},
}
"""Options that every engine takes, with a value each."""

OF_SOME = {
    "normalize": ("sentence_transformer", "multi_vector_encoder"),
    "pooling": ("sentence_transformer",),
}
FACTS = {
    "append_eos": True,
    "causal": True,
    "dense_dim": 99,
    "token_dim": 99,
    "score_mode": "yes_no",
    "output_similarity": {"dense": "euclidean"},
    "query_expansion": True,
    "doc_punctuation_skiplist": True,
}
"""Options that say something of a model, with values that are untrue of a random BERT."""


def placed(name: str, value: Any) -> dict[str, dict[str, Any]]:
    return {"loadtime" if name in LOADTIME else "runtime": {name: value}}


@pytest.fixture(scope="module")
def paths(backbone: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A checkpoint for each kind of engine."""
    root = tmp_path_factory.mktemp("kinds")
    return {
        "sentence_transformer": str(backbone["plain"]),
        "cross_encoder": checkpoints.cross(backbone, root / "cross"),
        "sparse_encoder": checkpoints.sparse(backbone, root / "sparse"),
        "multi_vector_encoder": checkpoints.late(backbone, root / "late", expanded=False),
    }


@pytest.mark.parametrize("kind", KINDS)
async def test_an_option_that_nothing_is_done_for_is_refused_before_the_load(
    open_engine: OpenEngine, kind: str
) -> None:
    unread = sorted({*LOADTIME, *RUNTIME} - {*READ, *FACTS} - {name for name, by in OF_SOME.items() if kind in by})
    assert {"yes_token", "lora_id", "muvera", "forward_kwargs", "score_strategy"} < {*unread}
    for name in unread:
        with pytest.raises(EngineLoadError, match=rf"\.{name}$") as refused:
            async with open_engine(kind, "/not/looked/for", **placed(name, {"some": "value"})):
                pass
        assert refused.value.permanent
        assert refused.value.error_class == "UnsupportedOption"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_read_and_what_asks_for_nothing_is_taken(
    open_engine: OpenEngine, paths: dict[str, str], kind: str
) -> None:
    loadtime = {name: value for name, value in READ.items() if name in LOADTIME}
    runtime = {name: value for name, value in READ.items() if name in RUNTIME}
    neutral = {"muvera": None, "lora_id": "", "query_expansion": False, "append_eos": False, "forward_kwargs": {}}
    async with open_engine(kind, paths[kind], dims=DIMS, loadtime=loadtime | neutral, runtime=runtime) as run:
        assert (await run(score("red", ["cat", "dog"]))).usage.prompt_tokens > 0


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_untrue_of_the_model_is_refused(
    open_engine: OpenEngine, paths: dict[str, str], kind: str
) -> None:
    for name, value in FACTS.items():
        with pytest.raises(EngineLoadError, match=rf"\.{name}: ") as refused:
            async with open_engine(kind, paths[kind], dims=DIMS, **placed(name, value)):
                pass
        assert refused.value.permanent


@pytest.mark.parametrize(
    ("kind", "true"),
    [
        ("sentence_transformer", {"dense_dim": 32, "score_mode": "similarity", "causal": False}),
        ("sentence_transformer", {"output_similarity": {"dense": "cosine"}}),
        ("sentence_transformer", {"output_similarity": {"dense": "dot"}, "normalize": True}),
        ("sparse_encoder", {"score_mode": "similarity"}),
        ("multi_vector_encoder", {"token_dim": 16, "score_mode": "maxsim", "doc_punctuation_skiplist": False}),
    ],
)
async def test_what_is_true_of_the_model_is_taken(
    open_engine: OpenEngine, paths: dict[str, str], kind: str, true: dict[str, Any]
) -> None:
    async with open_engine(kind, paths[kind], dims=DIMS, loadtime=true) as run:
        assert run.engine.memory_bytes > 0


async def test_dot_products_of_vectors_of_any_length_are_no_cosines(
    open_engine: OpenEngine, paths: dict[str, str]
) -> None:
    with pytest.raises(EngineLoadError, match="output_similarity"):
        async with open_engine(
            "sentence_transformer", paths["sentence_transformer"], runtime={"output_similarity": {"dense": "dot"}}
        ):
            pass


async def test_expansion_and_skip_list_of_the_checkpoint_may_be_named(
    open_engine: OpenEngine, backbone: dict[str, Path], tmp_path: Path
) -> None:
    expansion = {"strategy": "fixed", "length": 12, "token": None, "attend": False}
    modules = [
        Transformer(str(backbone["plain"]), query_length=12, query_expansion=expansion),
        MultiVectorMask(skiplist_words=list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")),
        Normalize(module_input_name="token_embeddings"),
    ]
    MultiVectorEncoder(modules=modules, device="cpu").save_pretrained(str(tmp_path))
    open_late = partial(open_engine, "multi_vector_encoder", str(tmp_path), dims={"multivector": 32})
    async with open_late(loadtime={"query_expansion": True, "doc_punctuation_skiplist": True}) as run:
        assert (await run(encode(["red"], output_types=("multivector",)))).output.token_dims == 32
    with pytest.raises(EngineLoadError, match="query_expansion: False"):
        async with open_late(loadtime={"query_expansion": False}):
            pass


@pytest.mark.parametrize(("configured", "causal"), [({}, True), ({"is_causal": False}, False)])
async def test_a_decoder_sees_both_ways_when_its_configuration_says_so(
    open_engine: OpenEngine, tmp_path: Path, configured: dict[str, bool], causal: bool
) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    Qwen2Model(Qwen2Config(vocab_size=5 + len(WORDS), **sizes, **heads, **configured)).save_pretrained(tmp_path)
    checkpoints.word_tokenizer().save_pretrained(tmp_path)
    async with open_engine("sentence_transformer", str(tmp_path), loadtime={"causal": causal}):
        pass
    with pytest.raises(EngineLoadError, match=f"causal: {not causal}"):
        async with open_engine("sentence_transformer", str(tmp_path), loadtime={"causal": not causal}):
            pass


async def test_an_end_of_text_that_the_tokenizer_appends_may_be_named(
    open_engine: OpenEngine, backbone: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(backbone["plain"], tmp_path, dirs_exist_ok=True)
    tokenizer = checkpoints.word_tokenizer()
    tokenizer.eos_token = "[SEP]"
    tokenizer.save_pretrained(tmp_path)
    async with open_engine("sentence_transformer", str(tmp_path), loadtime={"append_eos": True}):
        pass


async def test_the_embedded_model_says_what_is_true_of_it(open_engine: OpenEngine) -> None:
    loadtime, runtime = {"score_mode": "similarity"}, {"normalize": True, "pooling": "mean"}
    async with open_engine("sentence_transformer", MINILM, dims={"dense": 384}, loadtime=loadtime, runtime=runtime):
        pass

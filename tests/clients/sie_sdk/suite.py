"""What the official SIE SDK does with a running server. Runs in an environment of its own, for it needs Python 3.12.

``SERVER_URL`` is the server's address, ``SERVER_KEY`` its token. Started by ``tests/clients/test_sie_sdk.py``.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sie_sdk import SIEAsyncClient, SIEClient
from sie_sdk.client.errors import RequestError

URL, KEY = os.environ["SERVER_URL"], os.environ["SERVER_KEY"]
EMBED = "sentence-transformers/all-MiniLM-L6-v2"
CHAT = "HuggingFaceTB/SmolLM2-135M-Instruct"
TEXTS = ["Paris is the capital of France.", "Bananas are rich in potassium.", "Berlin is the capital of Germany."]
QUERY = "What is the capital of France?"

warnings.filterwarnings("ignore", message="SDK version")


@pytest.fixture
def client() -> Iterator[SIEClient]:
    with SIEClient(URL, api_key=KEY) as client:
        yield client


def items(*texts: str) -> list[dict[str, Any]]:
    return [{"id": f"id-{index}", "text": text} for index, text in enumerate(texts)]


def test_one_text_becomes_one_array(client: SIEClient) -> None:
    result = client.encode(EMBED, {"text": TEXTS[0]})
    assert isinstance(result["dense"], np.ndarray)
    assert result["dense"].dtype == np.float32
    assert result["dense"].shape == (384,)
    assert np.linalg.norm(result["dense"]) == pytest.approx(1.0, abs=1e-3)
    assert result["timing"]["inference_ms"] > 0


def test_a_batch_keeps_ids_and_order(client: SIEClient) -> None:
    texts = [*TEXTS, "x", "a much longer text " * 20, ""]
    results = client.encode(EMBED, items(*texts))
    assert [result["id"] for result in results] == [f"id-{index}" for index in range(len(texts))]
    for text, result in zip(texts, results, strict=True):
        alone = client.encode(EMBED, {"text": text})
        assert float(result["dense"] @ alone["dense"]) == pytest.approx(1.0, abs=1e-3)


def test_multivectors_have_a_row_per_token(client: SIEClient) -> None:
    one, other = client.encode(EMBED, items("Paris", TEXTS[0]), output_types=["dense", "multivector"])
    assert one["multivector"].ndim == 2
    assert one["multivector"].shape[1] == 384
    assert len(one["multivector"]) < len(other["multivector"])
    assert one["dense"].shape == (384,)


@pytest.mark.parametrize(
    ("name", "dtype", "width"),
    [("float16", np.float16, 384), ("int8", np.int8, 384), ("uint8", np.uint8, 384), ("binary", np.uint8, 48)],
)
def test_quantised_vectors(client: SIEClient, name: Any, dtype: Any, width: int) -> None:
    whole = client.encode(EMBED, {"text": TEXTS[0]})["dense"]
    small = client.encode(EMBED, {"text": TEXTS[0]}, output_dtype=name)["dense"]
    assert small.dtype == dtype
    assert small.shape == (width,)
    if name == "binary":
        assert (np.unpackbits(small).astype(bool) == (whole > 0)).mean() > 0.98
    else:
        assert np.corrcoef(small.astype(np.float64), whole)[0, 1] > 0.99


def test_scores_rank_the_right_text_first(client: SIEClient) -> None:
    result = client.score(EMBED, {"id": "q", "text": QUERY}, items(*TEXTS))
    assert result["query_id"] == "q"
    assert [entry["rank"] for entry in result["scores"]] == [0, 1, 2]
    assert [entry["item_id"] for entry in result["scores"]] == ["id-0", "id-2", "id-1"]
    assert result["usage"]["input_tokens"] > 0


def test_generate_and_stream_say_the_same(client: SIEClient) -> None:
    asked: dict[str, Any] = {"prompt": "The capital of France is", "max_new_tokens": 8, "temperature": 0.0}
    whole = client.generate(CHAT, **asked)
    assert "Paris" in whole["text"]
    assert whole["usage"]["completion_tokens"] == 8
    chunks = list(client.stream_generate(CHAT, **asked))
    assert "".join(chunk["text_delta"] for chunk in chunks) == whole["text"]
    assert chunks[-1]["done"] is True


def test_chat(client: SIEClient) -> None:
    messages: Any = [{"role": "user", "content": "What is the capital of France? One word."}]
    reply = client.chat_completions(CHAT, messages, max_completion_tokens=16, temperature=0.0)
    assert "Paris" in reply["choices"][0]["message"]["content"]


def test_models(client: SIEClient) -> None:
    assert EMBED in [model["name"] for model in client.list_models()]
    assert client.get_model(EMBED)["dims"]["dense"] == 384


@pytest.mark.parametrize(
    ("call", "status", "code"),
    [
        (lambda c: c.encode("no/such-model", {"text": "x"}), 404, "MODEL_NOT_FOUND"),
        (lambda c: c.encode(EMBED, {"text": "x"}, output_types=["sparse"]), 400, "INVALID_INPUT"),
        (lambda c: c.encode(EMBED, {"images": [b"\x89PNG\r\n\x1a\n"]}), 400, "INVALID_INPUT"),
        (lambda c: c.encode(f"{EMBED}:none", {"text": "x"}), 400, "INVALID_REQUEST"),
        (lambda c: c.score(CHAT, {"text": "x"}, [{"text": "y"}]), 400, "INVALID_INPUT"),
    ],
    ids=["unknown model", "unknown output", "images", "unknown profile", "wrong task"],
)
def test_a_refusal_has_status_code_and_words(client: SIEClient, call: Any, status: int, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        call(client)
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert str(caught.value)


def test_async() -> None:
    async def work() -> None:
        async with SIEAsyncClient(URL, api_key=KEY) as client:
            encoded, scored = await asyncio.gather(
                client.encode(EMBED, items(*TEXTS)), client.score(EMBED, {"text": QUERY}, items(*TEXTS))
            )
            assert [result["dense"].shape for result in encoded] == [(384,)] * 3
            assert scored["scores"][0]["item_id"] == "id-0"

    asyncio.run(work())


def test_async_generate_stream_and_chat_say_the_same() -> None:
    async def work() -> None:
        asked: dict[str, Any] = {"prompt": "The capital of France is", "max_new_tokens": 8, "temperature": 0.0}
        async with SIEAsyncClient(URL, api_key=KEY) as client:
            whole = await client.generate(CHAT, **asked)
            assert "Paris" in whole["text"]
            assert whole["usage"]["completion_tokens"] == 8
            chunks = [chunk async for chunk in client.stream_generate(CHAT, **asked)]
            assert "".join(chunk["text_delta"] for chunk in chunks) == whole["text"]
            assert chunks[-1]["done"] is True
            messages: Any = [{"role": "user", "content": "What is the capital of France? One word."}]
            said = {"max_completion_tokens": 16, "temperature": 0.0}
            reply = await client.chat_completions(CHAT, messages, **said)
            text = reply["choices"][0]["message"]["content"]
            assert "Paris" in text
            parts = [part async for part in client.stream_chat_completions(CHAT, messages, **said)]
            told = (choice["delta"].get("content") or "" for part in parts for choice in part["choices"])
            assert "".join(told) == text

    asyncio.run(work())


def test_async_many_at_once() -> None:
    async def work() -> None:
        async with SIEAsyncClient(URL, api_key=KEY) as client:
            texts = [f"text number {index} " * (1 + index % 7) for index in range(40)]
            together = await asyncio.gather(*(client.encode(EMBED, {"text": text}) for text in texts))
            batch = await client.encode(EMBED, items(*texts))
            for one, other in zip(together, batch, strict=True):
                assert float(one["dense"] @ other["dense"]) == pytest.approx(1.0, abs=1e-3)

    asyncio.run(work())

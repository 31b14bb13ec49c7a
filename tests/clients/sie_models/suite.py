"""Every kind of retrieval and extraction model, as the official SIE SDK asks for it: scores, all three kinds of vectors
as arrays, images, entities, relations, classes.

``SERVER_URL`` is the server's address. Started by ``tests/clients/test_own_models.py``.
"""

from __future__ import annotations

import asyncio
import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sie_sdk import SIEAsyncClient, SIEClient
from sie_sdk.client.errors import RequestError

URL = os.environ["SERVER_URL"]
TEXTS = ["the cat is in paris", "music of the river", "fish"]
LABELS = ["animal", "place", "music"]

warnings.filterwarnings("ignore", message="SDK version")


@pytest.fixture
def client() -> Iterator[SIEClient]:
    with SIEClient(URL) as client:
        yield client


def items(*texts: str) -> list[dict[str, Any]]:
    return [{"id": f"id-{index}", "text": text} for index, text in enumerate(texts)]


def png(red: int) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = (b"\0" + bytes((red, 80, 160)) * 40) * 30
    header = struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.parametrize("model", ["cross", "late", "sparse", "clip"])
def test_score(client: SIEClient, model: str) -> None:
    result = client.score(f"tiny/{model}", {"text": "cat"}, items(*TEXTS))
    assert sorted(entry["item_id"] for entry in result["scores"]) == ["id-0", "id-1", "id-2"]
    scores = [entry["score"] for entry in result["scores"]]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 3


def test_sparse(client: SIEClient) -> None:
    for result in client.encode("tiny/sparse", items(*TEXTS), output_types=["sparse"]):
        assert result["sparse"]["indices"].dtype == np.int32
        assert result["sparse"]["values"].dtype == np.float32
        assert result["sparse"]["indices"].shape == result["sparse"]["values"].shape


@pytest.mark.parametrize("is_query", [True, False])
def test_multivector(client: SIEClient, is_query: bool) -> None:
    results = client.encode("tiny/late", items(*TEXTS), output_types=["multivector"], is_query=is_query)
    assert all(result["multivector"].shape[1] == 16 for result in results)
    assert all(np.allclose(np.linalg.norm(result["multivector"], axis=1), 1, atol=1e-3) for result in results)


def test_images(client: SIEClient) -> None:
    one, other, text = client.encode(
        "tiny/clip", [{"id": "a", "images": [png(10)]}, {"id": "b", "images": [png(250)]}, {"id": "c", "text": "cat"}]
    )
    assert one["dense"].shape == other["dense"].shape == text["dense"].shape == (16,)
    assert not np.allclose(one["dense"], other["dense"])
    with pytest.raises(RequestError) as caught:
        client.encode("tiny/clip", {"images": [png(10)[:60]]})
    assert (caught.value.status_code, caught.value.code) == (400, "INVALID_INPUT")


def test_entities_and_relations(client: SIEClient) -> None:
    options = {"threshold": 0.1, "relation_labels": ["lives in"], "relation_threshold": 0.1}
    for result, text in zip(
        client.extract("tiny/relex", items(*TEXTS), labels=LABELS, options=options), TEXTS, strict=True
    ):
        assert all(text[one["start"] : one["end"]] == one["text"] for one in result["entities"])
        assert {"head", "tail", "relation", "score"} <= {
            key for one in result["relations"] for key in one
        } or not result["relations"]
    found = client.extract("tiny/gliner", {"text": TEXTS[0]}, labels=LABELS, options={"threshold": 0.1})
    assert {one["label"] for one in found["entities"]} <= set(LABELS)


def test_classes(client: SIEClient) -> None:
    result = client.extract("tiny/nli", {"text": TEXTS[0]}, labels=LABELS)
    assert sorted(one["label"] for one in result["classifications"]) == sorted(LABELS)
    assert sum(one["score"] for one in result["classifications"]) == pytest.approx(1.0)


def test_async() -> None:
    async def work() -> None:
        async with SIEAsyncClient(URL) as client:
            sparse, late, scored, found = await asyncio.gather(
                client.encode("tiny/sparse", items(*TEXTS), output_types=["sparse"]),
                client.encode("tiny/late", items(*TEXTS), output_types=["multivector"]),
                client.score("tiny/cross", {"text": "cat"}, items(*TEXTS)),
                client.extract("tiny/nli", items(*TEXTS), labels=LABELS),
            )
            assert len(sparse) == len(late) == len(scored["scores"]) == len(found) == 3

    asyncio.run(work())

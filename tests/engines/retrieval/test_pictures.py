"""Images beside texts: parity with the library, and what is no image or too much of one."""

from __future__ import annotations

import asyncio
import io
import struct
import threading
import weakref
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from sentence_transformers import SentenceTransformer

from engines.adapters.base import EngineLoadError, WorkError
from engines.adapters.retrieval.loading import cores
from engines.adapters.retrieval.pictures import alike
from engines.adapters.retrieval.runner import Runner
from engines.protocol.events import ItemError
from engines.protocol.work import EncodeWork, Image, Item, ScoreWork
from tests.engines.retrieval.helpers import MINILM, OpenEngine, array, encode, sentences

CLIP: dict[str, Any] = {"dims": {"dense": 16}, "inputs": ("text", "image"), "compute_precision": "float32"}
SIZES = ((40, 50), (28, 28), (7, 90), (300, 200))


def picture(number: int) -> Pillow.Image:
    """A picture of its own size and content."""
    height, width = SIZES[number % len(SIZES)]
    return Pillow.fromarray(np.random.default_rng(number).integers(0, 255, (height, width, 3), dtype=np.uint8))


def data(image: Pillow.Image, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def items(count: int) -> list[Item]:
    return [Item(images=[Image(data=data(picture(number)))]) for number in range(count)]


def bomb(side: int) -> bytes:
    """A PNG of some hundred bytes that says that it is a square of ``side`` pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    )


async def test_images_and_texts_equal_the_librarys(open_engine: OpenEngine, clip_path: str) -> None:
    library = SentenceTransformer(clip_path, device="cpu")
    texts = sentences(6, longest=20)
    mixed = [item for pair in zip(items(6), [Item(text=text) for text in texts], strict=True) for item in pair]
    async with open_engine("sentence_transformer", clip_path, **CLIP) as run:
        reply = await run(EncodeWork(request_id="r", model="tested", items=mixed))
    got = array(reply.output.dense)
    expected = library.encode([picture(number) for number in range(6)])
    assert np.ptp(expected, axis=0).max() > 0.1, "the checkpoint tells pictures apart"
    np.testing.assert_allclose(got[::2], expected, atol=1e-5)
    np.testing.assert_allclose(got[1::2], library.encode([{"text": text} for text in texts]), atol=1e-5)
    assert reply.usage.images == 6
    assert reply.usage.prompt_tokens > 0


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
async def test_a_format(open_engine: OpenEngine, clip_path: str, form: str) -> None:
    encoded = data(picture(0).convert("P" if form == "GIF" else "RGB"), form)
    expected = SentenceTransformer(clip_path, device="cpu").encode([Pillow.open(io.BytesIO(encoded)).convert("RGB")])
    async with open_engine("sentence_transformer", clip_path, **CLIP) as run:
        work = EncodeWork(request_id="r", model="tested", items=[Item(images=[Image(data=encoded)])])
        got = array((await run(work)).output.dense)
    np.testing.assert_allclose(got, expected, atol=1e-5)


async def test_a_faulty_image_is_an_error_of_its_item(open_engine: OpenEngine, clip_path: str) -> None:
    good, other = items(2)
    faulty = [
        Item(images=[Image(data=b"no image")]),
        Item(images=[Image(data=data(picture(0))[:200])]),
        Item(images=[Image(data=bomb(30_000))]),
        Item(images=[Image(data=bomb(9_000))]),
        Item(images=[Image(data=data(Pillow.new("RGB", (1, 40_000))))]),
        Item(images=[*good.images, *other.images]),
        Item(images=good.images, text="red"),
        Item(document=b"%PDF"),
        Item(),
    ]
    async with open_engine("sentence_transformer", clip_path, **CLIP) as run:
        alone = array((await run(EncodeWork(request_id="r", model="tested", items=[good, other]))).output.dense)
        output = (await run(EncodeWork(request_id="r", model="tested", items=[good, *faulty, other]))).output
    assert sorted(output.errors) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert {error.code for error in output.errors.values()} == {"INVALID_INPUT"}
    words = [
        "none of PNG",
        "damaged",
        "too many pixels",
        "9000 x 9000",
        "long and narrow",
        "2 images",
        "a text and an image",
    ]
    for index, part in enumerate(words, start=1):
        assert part in output.errors[index].message
    np.testing.assert_allclose(array(output.dense)[[0, 10]], alone, atol=1e-5)


async def test_images_of_which_none_is_good_are_all_errors(open_engine: OpenEngine, clip_path: str) -> None:
    broken = [Item(images=[Image(data=b"no image")]), Item(images=[Image(data=data(picture(0))[:200])])]
    async with open_engine("sentence_transformer", clip_path, **CLIP) as run:
        reply = await run(EncodeWork(request_id="r", model="tested", items=broken))
    assert [error.code for error in reply.output.errors.values()] == ["INVALID_INPUT"] * 2


async def test_many_clients_get_their_own_pictures(open_engine: OpenEngine, clip_path: str) -> None:
    every = items(12)
    async with open_engine("sentence_transformer", clip_path, **CLIP) as run:
        works = [EncodeWork(request_id="r", model="tested", items=[item, Item(text="red cat")]) for item in every]
        replies = await asyncio.gather(*map(run, works))
        together = array((await run(EncodeWork(request_id="r", model="tested", items=every))).output.dense)
    got = np.stack([array(reply.output.dense)[0] for reply in replies])
    np.testing.assert_allclose(got, together, atol=1e-5)


class Kept:
    """Counts the decoded pictures that exist, while the model's own preparation of them goes on as ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self.now = self.made = 0
        self._lock = threading.Lock()
        own = Runner.picture

        def counted(runner: Runner, image: Any) -> Any:
            features = own(runner, image)
            self._add(1)
            weakref.finalize(features["pixel_values"], self._add, -1)
            return features

        monkeypatch.setattr(Runner, "picture", counted)

    def _add(self, change: int) -> None:
        with self._lock:
            self.now += change
            self.made += change > 0
            self.most = max(self.most, self.now)


async def test_only_the_pictures_of_running_batches_are_decoded(
    open_engine: OpenEngine, clip_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(monkeypatch)
    dot = data(Pillow.new("RGB", (1, 1)))
    async with open_engine("sentence_transformer", clip_path, **CLIP, max_batch_tokens=50) as run:
        work = EncodeWork(request_id="r", model="tested", items=[Item(images=[Image(data=dot)])] * 500)
        reply = await run(work)
    assert array(reply.output.dense).shape == (500, 16)
    assert kept.made == 500
    # 5 tokens a picture: 10 in a batch, one batch a core
    assert kept.most <= 10 * cores()


async def test_a_refused_request_has_none_of_its_pictures_decoded(
    open_engine: OpenEngine, clip_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(monkeypatch)
    async with open_engine("sentence_transformer", clip_path, **CLIP, loadtime={"max_pending_tokens": 20}) as run:
        first = asyncio.create_task(run(EncodeWork(request_id="r", model="tested", items=items(4))))
        await asyncio.sleep(0)
        with pytest.raises(WorkError) as refused:
            await run(EncodeWork(request_id="r", model="tested", items=items(100)))
        assert refused.value.code == "RESOURCE_EXHAUSTED"
        await first
    assert kept.made == 4


async def test_the_bytes_of_a_waiting_picture_count_where_they_are_more_than_its_patches(
    open_engine: OpenEngine, clip_path: str
) -> None:
    large = data(Pillow.fromarray(np.random.default_rng(0).integers(0, 255, (300, 300, 3), dtype=np.uint8)))
    async with open_engine("sentence_transformer", clip_path, **CLIP) as run:
        for encoded, cost in ((data(picture(1)), 5), (large, len(large) // 1024)):
            task = asyncio.create_task(
                run(EncodeWork(request_id="r", model="tested", items=[Item(images=[Image(data=encoded)])]))
            )
            await asyncio.sleep(0)
            assert run.engine.status().pending_cost == cost
            await task


def test_pictures_whose_tensors_differ_in_shape_go_through_the_model_apart() -> None:
    shapes = [(1, 3, 4), None, (1, 3, 5), (1, 3, 4)]
    prepared = [
        {"pixel_values": torch.zeros(shape), "modality": "image"} if shape else ItemError("INVALID_INPUT", "broken")
        for shape in shapes
    ]
    assert alike(prepared) == [[0, 3], [2]]


async def test_scores_between_texts_and_images_are_cosines(open_engine: OpenEngine, clip_path: str) -> None:
    library = SentenceTransformer(clip_path, device="cpu")
    expected = library.similarity(library.encode(["red cat"]), library.encode([picture(n) for n in range(5)]))[0]
    async with open_engine("sentence_transformer", clip_path, **CLIP) as run:
        work = ScoreWork(request_id="r", model="tested", query=Item(text="red cat"), items=items(5))
        reply = await run(work)
        np.testing.assert_allclose(reply.output.scores, expected, atol=1e-5)
        assert reply.usage.images == 5
        work.items[1] = Item(images=[Image(data=b"no image")])
        with pytest.raises(WorkError, match=r"items\[1\]"):
            await run(work)


@pytest.mark.parametrize("direct", [True, False], ids=["tokenised here", "tokenised by the library"])
async def test_a_text_that_is_the_path_of_an_image_is_a_text(
    open_engine: OpenEngine, clip_path: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    """The library would open the file, or fetch the address."""
    monkeypatch.setattr(Runner, "_can_be_direct", lambda self: direct)
    path = tmp_path / "red.png"
    path.write_bytes(data(picture(0)))
    texts = [str(path), "http://127.0.0.1:9/red.png", "red"]
    library = SentenceTransformer(clip_path, device="cpu")
    async with open_engine("sentence_transformer", clip_path, **CLIP) as run:
        got = array((await run(encode(texts))).output.dense)
    np.testing.assert_allclose(got, library.encode([{"text": text} for text in texts]), atol=1e-5)


async def test_an_entry_that_promises_images_without_a_tower_for_them_is_not_loaded(open_engine: OpenEngine) -> None:
    with pytest.raises(EngineLoadError, match="image tower"):
        async with open_engine("sentence_transformer", MINILM, dims={"dense": 384}, inputs=("text", "image")):
            pass

"""Images through the whole engine, on a tiny checkpoint; and the end of an engine, wanted and not."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from PIL import Image as Pillow

from engines.adapters import create
from engines.adapters.base import Engine, EngineDead, EngineLoadError, WorkError
from engines.protocol.catalog import Generation, Profile
from engines.protocol.work import Image
from tests.engines.generation.checkpoints import vision
from tests.engines.generation.helpers import Recorder, answer, entry, work


def profile(source: str, **loadtime: Any) -> Profile:
    return Profile(
        name="default",
        engine="vllm",
        adapter_path="engines.adapters.vllm:VllmEngine",
        source=source,
        compute_precision="float32",
        loadtime=loadtime,
    )


def open_engine(source: str, **loadtime: Any) -> Engine:
    chosen = profile(source, **loadtime)
    made = entry(chosen, inputs=("text", "image"), generation=Generation(context_length=512))
    return create(made, chosen)


@pytest.fixture(scope="module")
def checkpoint(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision(weights, tmp_path_factory.mktemp("vision"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def seer(checkpoint: Path) -> AsyncIterator[Engine]:
    made = open_engine(str(checkpoint))
    await made.load()
    yield made
    await made.close()


def picture(color: str, kind: str = "PNG") -> Image:
    data = io.BytesIO()
    Pillow.new("RGB", (40, 30), color).save(data, kind)
    return Image(data.getvalue())


def look(*images: Image) -> dict[str, Any]:
    parts = [
        {"type": "text", "text": "What is "},
        *({"type": "image", "index": index} for index in range(len(images))),
        {"type": "text", "text": "here?"},
    ]
    return {"prompt": [{"role": "user", "content": parts}], "images": list(images)}


async def test_the_picture_changes_the_answer_as_it_does_in_transformers(seer: Engine, checkpoint: Path) -> None:
    from transformers import Blip2ForConditionalGeneration, Blip2Processor

    processor = Blip2Processor.from_pretrained(checkpoint)
    model = Blip2ForConditionalGeneration.from_pretrained(checkpoint)
    texts = []
    for color in ("red", "blue"):
        image = picture(color)
        got = await answer(seer, work(**look(image), sampling={"max_tokens": 4}))
        prompt = "<|im_start|>user\nWhat is here?<|im_end|>\n<|im_start|>assistant\n"
        inputs = processor(images=Pillow.open(io.BytesIO(image.data)), text=prompt, return_tensors="pt")
        expected = model.generate(**inputs, max_new_tokens=4, do_sample=False)[0][inputs["input_ids"].shape[1] :]
        assert got.text == processor.tokenizer.decode(expected, skip_special_tokens=True)
        assert got.usage.images == 1
        assert got.prompt_tokens == inputs["input_ids"].shape[1]
        texts.append(got.text)
    assert texts[0] != texts[1]


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "WEBP"])
async def test_kinds_of_images_look_the_same(seer: Engine, kind: str) -> None:
    expected = await answer(seer, work(**look(picture("red")), sampling={"max_tokens": 4}))
    if kind == "WEBP":
        data = io.BytesIO()
        Pillow.new("RGB", (40, 30), "red").save(data, kind, lossless=True)
        image = Image(data.getvalue())
    else:
        image = picture("red", kind)
    assert (await answer(seer, work(**look(image), sampling={"max_tokens": 4}))).text == expected.text


@pytest.mark.parametrize(
    "data",
    [b"", b"not an image", picture("red").data[:60], b"<svg xmlns='http://www.w3.org/2000/svg'/>"],
    ids=["empty", "text", "cut", "svg"],
)
async def test_what_is_no_image_is_refused_and_the_engine_lives(seer: Engine, data: bytes) -> None:
    with pytest.raises(WorkError) as refused:
        await answer(seer, work(**look(Image(data))))
    assert (refused.value.code, refused.value.param) == ("invalid_request", "messages")
    assert (await answer(seer, work(**look(picture("red")), sampling={"max_tokens": 1}))).usage


async def test_more_images_than_the_model_takes_are_refused(seer: Engine) -> None:
    with pytest.raises(WorkError) as refused:
        await answer(seer, work(**look(picture("red"), picture("blue"))))
    assert refused.value.code == "invalid_request"


async def test_a_killed_engine_fails_its_work_and_says_that_it_is_dead(checkpoint: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    engine = open_engine(str(checkpoint))
    await engine.load()
    reply = Recorder()
    running = asyncio.create_task(
        engine.run(work("Once", sampling={"max_tokens": 400, "min_tokens": 400}, stream=True), reply)
    )
    while not reply.choices:  # noqa: ASYNC110  # the reply is no event
        await asyncio.sleep(0.01)
    born = [child for child in psutil.Process().children() if child.pid not in before]
    for child in born:
        if "Engine" in child.name():
            child.kill()
    with pytest.raises(EngineDead) as dead:
        await running
    assert dead.value.code == "transport_failure"
    with pytest.raises(EngineDead):
        await engine.run(work("Again"), Recorder())
    await engine.close()
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    assert [child.name() for child in left if child.name() != "sh" and "python" not in child.name()] == []


@pytest.mark.parametrize(
    ("source", "loadtime", "named"),
    [
        ("/nowhere/model", {}, "nowhere"),
        ("package:no-such-package", {}, "no-such-package"),
        ("checkpoint", {"frobnicate": 1}, "loadtime.frobnicate"),
        ("checkpoint", {"extra_launch_args": ["--frobnicate", "1"]}, "--frobnicate"),
        ("checkpoint", {"speculative": {"enabled": True, "algorithm": "MAGIC"}}, "speculative.algorithm"),
        ("checkpoint", {"chat_template": "/nowhere/template.jinja"}, "template.jinja"),
    ],
)
async def test_what_cannot_be_served_is_said_at_load(
    checkpoint: Path, source: str, loadtime: dict[str, Any], named: str
) -> None:
    engine = open_engine(str(checkpoint) if source == "checkpoint" else source, **loadtime)
    with pytest.raises(EngineLoadError) as refused:
        await engine.load()
    assert named in str(refused.value)
    assert refused.value.permanent
    await engine.close()

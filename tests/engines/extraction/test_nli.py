"""Zero-shot classification: the scores of transformers' own pipeline, whatever the batching."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from transformers import pipeline

from engines.adapters import create
from engines.adapters.base import EngineDead, EngineLoadError, WorkError
from engines.protocol.catalog import ModelEntry, Profile
from tests.engines.extraction.helpers import OpenEngine, extract
from tests.engines.retrieval.helpers import WORDS, Recorder

LABELS = ["music", "fish", "capital city", "sun"]


def texts(count: int, longest: int = 30) -> list[str]:
    pick = random.Random(5)
    return [" ".join(pick.choices(WORDS, k=pick.randint(1, longest))) for _ in range(count - 1)] + ["red " * 300]


@pytest.mark.parametrize("checkpoint", ["nli", "backwards"])
@pytest.mark.parametrize(
    "options", [{}, {"multi_label": True}, {"hypothesis_template": "the city is {} of the"}, {"multi_label": False}]
)
async def test_scores_are_those_of_the_library(
    open_engine: OpenEngine, bert: dict[str, Path], checkpoint: str, options: dict[str, Any]
) -> None:
    library = pipeline("zero-shot-classification", model=str(bert[checkpoint]), device="cpu")
    given_texts = texts(10)
    async with open_engine("nli", str(bert[checkpoint]), compute_precision="float32") as run:
        reply = await run(extract(given_texts, labels=LABELS, options=options))
    for text, result in zip(given_texts, reply.output.items, strict=True):
        expected = library(text, candidate_labels=LABELS, **options)
        found = {one["label"]: one["score"] for one in result["classifications"]}
        assert found == pytest.approx(dict(zip(expected["labels"], expected["scores"], strict=True)), abs=1e-5)
        scores = [one["score"] for one in result["classifications"]]
        assert scores == sorted(scores, reverse=True)
        if not options.get("multi_label"):
            assert sum(scores) == pytest.approx(1.0)
    assert reply.usage.prompt_tokens > 0


async def test_a_lone_label_is_a_question_of_its_own(open_engine: OpenEngine, bert: dict[str, Path]) -> None:
    library = pipeline("zero-shot-classification", model=str(bert["nli"]), device="cpu")
    async with open_engine("nli", str(bert["nli"]), compute_precision="float32") as run:
        (result,) = (await run(extract(["red fish"], labels=["music"]))).output.items
    (one,) = result["classifications"]
    assert one["score"] == pytest.approx(library("red fish", candidate_labels=["music"])["scores"][0], abs=1e-5)
    assert one["score"] < 1.0


async def test_requests_side_by_side_get_their_own_labels(open_engine: OpenEngine, bert: dict[str, Path]) -> None:
    sets = [["music"], ["fish", "sun"], LABELS]
    async with open_engine("nli", str(bert["nli"]), compute_precision="float32") as run:
        works = [extract(texts(5), labels=labels) for labels in sets]
        together = await asyncio.gather(*(run(work) for work in works))
        alone = [await run(work) for work in works]
    for labels, one, other in zip(sets, together, alone, strict=True):
        for found, expected in zip(one.output.items, other.output.items, strict=True):
            assert {c["label"] for c in found["classifications"]} == set(labels)
            assert {c["label"]: c["score"] for c in found["classifications"]} == pytest.approx(
                {c["label"]: c["score"] for c in expected["classifications"]}, abs=1e-5
            )


async def test_labels_below_the_threshold_are_left_out(open_engine: OpenEngine, bert: dict[str, Path]) -> None:
    async with open_engine("nli", str(bert["nli"]), compute_precision="float32") as run:
        (everything,) = (await run(extract(["red fish"], labels=LABELS))).output.items
        middle = sorted(one["score"] for one in everything["classifications"])[2]
        (some,) = (await run(extract(["red fish"], labels=LABELS, options={"threshold": middle}))).output.items
    assert some["classifications"] == [one for one in everything["classifications"] if one["score"] >= middle]
    assert 0 < len(some["classifications"]) < len(LABELS)


async def test_too_many_labels_times_items_are_refused_by_name(open_engine: OpenEngine, bert: dict[str, Path]) -> None:
    labels = [f"label {index}" for index in range(1000)]
    async with open_engine("nli", str(bert["nli"])) as run:
        with pytest.raises(WorkError, match="1000 labels for 40 items are 40000 questions; at most 32768") as refused:
            await run(extract(["a"] * 40, labels=labels))
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "params.labels")


@pytest.mark.parametrize("template", ["no place", "{} and {}", "{label}", "{0}"])
async def test_a_template_without_one_place_is_refused(
    open_engine: OpenEngine, bert: dict[str, Path], template: str
) -> None:
    async with open_engine("nli", str(bert["nli"])) as run:
        with pytest.raises(WorkError, match="must have one") as refused:
            await run(extract(["a"], labels=LABELS, options={"hypothesis_template": template}))
    assert refused.value.param == "params.options.hypothesis_template"


async def test_a_classifier_that_knows_no_entailment_is_refused_for_good(
    open_engine: OpenEngine, bert: dict[str, Path]
) -> None:
    with pytest.raises(EngineLoadError, match=r"bad, good.*entailment") as refused:
        async with open_engine("nli", str(bert["sentiment"])):
            pass
    assert refused.value.permanent


async def test_a_broken_batch_thread_makes_the_engine_dead(bert: dict[str, Path]) -> None:
    profile = Profile(name="default", engine="nli", adapter_path="tests", source=str(bert["nli"]))
    engine: Any = create(ModelEntry(name="tested", tasks=("extract",), profiles={"default": profile}), profile)
    await engine.load()
    try:
        model = engine._batcher._model
        model.is_out_of_memory = None  # its next fault breaks the thread itself
        model.forward = None
        with pytest.raises(EngineDead):
            await engine.run(extract(["red cat"], labels=LABELS), Recorder())
    finally:
        await engine.close()

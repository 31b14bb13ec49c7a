"""Zero-shot entities and relations of tiny GLiNER models: as the library finds them, whatever the batching."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gliner import GLiNER
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.adapters import create
from engines.adapters.base import EngineLoadError, WorkError
from engines.adapters.extraction.engine import entity
from engines.adapters.extraction.gliner import merged
from engines.protocol.catalog import ModelEntry, Profile
from tests.engines.extraction import checkpoints
from tests.engines.extraction.helpers import HARD, OpenEngine, exact, extract
from tests.engines.retrieval.helpers import WORDS, Recorder

LABELS = ["animal", "place", "music"]
LOW = {"threshold": 0.35}


def texts(count: int, seed: int = 0, longest: int = 12) -> list[str]:
    pick = random.Random(seed)
    return [" ".join(pick.choices([*WORDS, "Zed,", "👩‍👩‍👧"], k=pick.randint(1, longest))) for _ in range(count)]


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    def keys(entities: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return sorted((e["start"], e["end"], e["label"], e["text"]) for e in entities)

    def scores(entities: list[dict[str, Any]]) -> list[float]:
        return [e["score"] for e in sorted(entities, key=lambda e: (e["start"], e["end"], e["label"]))]

    return keys(found) == keys(expected) and scores(found) == pytest.approx(scores(expected), abs=1e-4)


@pytest.mark.parametrize("more", [{}, {"flat_ner": False}, {"flat_ner": False, "multi_label": True}])
async def test_entities_are_those_of_the_library(open_engine: OpenEngine, gliner_path: str, more: Any) -> None:
    library = GLiNER.from_pretrained(gliner_path).eval()
    given_texts = texts(20)
    async with open_engine("gliner", gliner_path) as run:
        reply = await run(extract(given_texts, labels=LABELS, options={**LOW, **more}))
    count = 0
    for text, result in zip(given_texts, reply.output.items, strict=True):
        expected = library.inference([text], LABELS, **LOW, **more)[0]
        count += len(expected)
        assert exact(text, result)
        assert same(result["entities"], expected)
    assert count > 20
    assert reply.usage.prompt_tokens > 0


async def test_requests_with_different_labels_side_by_side_get_their_own(
    open_engine: OpenEngine, gliner_path: str
) -> None:
    sets = [["animal"], ["place", "music"], LABELS, ["colour"]]
    given_texts = texts(6, seed=1)
    async with open_engine("gliner", gliner_path) as run:
        works = [extract(given_texts, labels=labels, options=LOW) for labels in sets]
        together = await asyncio.gather(*(run(work) for work in works))
        alone = [await run(work) for work in works]
    for labels, one, other in zip(sets, together, alone, strict=True):
        for found, expected in zip(one.output.items, other.output.items, strict=True):
            assert same(found["entities"], expected["entities"])
            assert {e["label"] for e in found["entities"]} <= set(labels)


async def test_a_text_longer_than_the_model_is_read_to_its_end(open_engine: OpenEngine, gliner_path: str) -> None:
    parts = [" ".join(random.Random(i).choices(WORDS, k=15)) + "." for i in range(8)]
    text = "👩‍👩‍👧 " + " ".join(parts)
    library = GLiNER.from_pretrained(gliner_path).eval()
    async with open_engine("gliner", gliner_path) as run:
        (result,) = (await run(extract([text], labels=LABELS, options=LOW))).output.items
    assert exact(text, result)
    # windows end with the sentences, so each sentence has the entities that it has alone
    expected = []
    for part in parts[1:]:
        start = text.index(part)
        found = library.inference([part], LABELS, **LOW)[0]
        expected += [{**e, "start": e["start"] + start, "end": e["end"] + start} for e in found]
    assert expected[-1]["start"] > 300
    assert same([e for e in result["entities"] if e["start"] >= text.index(parts[1])], expected)


def in_windows(library: GLiNER, words: list[str], sizes: list[int], labels: list[str]) -> list[dict[str, Any]]:
    """What the library finds in each run of ``sizes`` words, in the offsets of the whole text."""
    assert sum(sizes) == len(words)
    found: list[dict[str, Any]] = []
    first = 0
    for size in sizes:
        start = len(" ".join([*words[:first], ""]))
        part = " ".join(words[first : first + size])
        found += [
            {**one, "start": one["start"] + start, "end": one["end"] + start}
            for one in library.inference([part], labels, **LOW)[0]
        ]
        first += size
    return found


MANY = [f"{one} {other}" for one, other in itertools.permutations(WORDS, 2)]
DENSE = ["-".join(random.Random(number).choices(WORDS, k=5)) for number in range(20)]


@pytest.mark.parametrize(
    ("labels", "words", "sizes"),
    [
        # 128 tokens: 2 special ones and 38 labels of 3 and their end leave room for 11 words
        (MANY[:38], random.Random(5).choices(WORDS, k=24), [11, 11, 2]),
        # 3 labels of 2 and their end leave room for 13 words of 9 tokens
        (LABELS, DENSE, [13, 7]),
        # a word that is too long alone
        (LABELS, ["cat", "-".join(WORDS * 4), "fish"], [1, 1, 1]),
    ],
    ids=["many labels", "words of many tokens", "a word longer than all"],
)
async def test_windows_hold_no_more_tokens_than_the_model_reads(
    open_engine: OpenEngine, gliner_path: str, labels: list[str], words: list[str], sizes: list[int]
) -> None:
    expected = in_windows(GLiNER.from_pretrained(gliner_path).eval(), words, sizes, labels)
    async with open_engine("gliner", gliner_path) as run:
        reply = await run(extract([" ".join(words)], labels=labels, options=LOW))
    (result,) = reply.output.items
    assert same(result["entities"], expected)
    assert max(one["end"] for one in expected) > len(" ".join(words)) - 20


async def test_labels_that_leave_no_room_for_a_text_are_refused(open_engine: OpenEngine, gliner_path: str) -> None:
    async with open_engine("gliner", gliner_path) as run:
        await run(extract(["red cat"], labels=MANY[:41]))  # leaves 2 tokens
        with pytest.raises(WorkError, match="no room for a text") as refused:
            await run(extract(["red cat"], labels=MANY[:42]))
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "params.labels")


async def test_labels_that_a_model_reads_apart_from_the_text_take_no_room(
    open_engine: OpenEngine, bert: dict[str, Path], tmp_path: Path
) -> None:
    path = checkpoints.gliner(bert, tmp_path, span_mode="markerV0", labels_encoder=str(bert["plain"]))
    library = GLiNER.from_pretrained(path).eval()
    text = " ".join(random.Random(6).choices(WORDS, k=24))
    async with open_engine("gliner", path) as run:
        (result,) = (await run(extract([text], labels=MANY[:60], options=LOW))).output.items
    assert same(result["entities"], library.inference([text], MANY[:60], **LOW)[0])


async def test_relation_labels_take_room_too(open_engine: OpenEngine, relex_path: str) -> None:
    async with open_engine("gliner", relex_path) as run:
        with pytest.raises(WorkError, match="no room for a text") as refused:
            await run(extract(["red cat"], labels=MANY[:20], options={"relation_labels": MANY[:22]}))
    assert refused.value.param == "params.labels"


@pytest.fixture(scope="module")
def find(relex_path: str) -> Iterator[Callable[[list[str]], Any]]:
    """``find(texts)`` gives the results of one request to a model that reads 24 words at a time."""
    profile = Profile(name="default", engine="gliner", adapter_path="tests", source=relex_path)
    engine = create(ModelEntry(name="tested", tasks=("extract",), profiles={"default": profile}), profile)
    with asyncio.Runner() as runner:
        runner.run(engine.load())

        def run(given_texts: list[str]) -> Any:
            reply = Recorder()
            runner.run(engine.run(extract(given_texts, labels=LABELS, options={"threshold": 0.1}), reply))
            return reply.output.items

        yield run
        runner.run(engine.close())


PIECES = (*HARD, "paris ", "red fish. ", "cat ")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=60), min_size=1, max_size=4))
def test_offsets_slice_the_text_whatever_it_is_made_of(find: Any, pieces: list[list[str]]) -> None:
    given_texts = ["".join(of_text) for of_text in pieces]
    for text, result in zip(given_texts, find(given_texts), strict=True):
        assert exact(text, result)
        assert bool(result["entities"]) == bool(text.strip())  # whatever has words has entities at this threshold


async def test_neighbours_of_one_label_are_merged_when_asked(open_engine: OpenEngine, relex_path: str) -> None:
    text = "paris france river cat dog sun moon fish"
    async with open_engine("gliner", relex_path, runtime={"threshold": 0.1}) as run:
        apart = (await run(extract([text], labels=["place"]))).output.items[0]["entities"]
        joined = await run(extract([text], labels=["place"], options={"merge_adjacent_entities": True}))
    assert len(apart) > 1
    whole = {"text": text, "label": "place", "score": min(e["score"] for e in apart), "start": 0, "end": len(text)}
    assert joined.output.items[0]["entities"] == [whole]


def test_only_space_between_neighbours_of_one_label_is_bridged() -> None:
    text = "New  York, Paris Rome"
    spans = [(0, 3, "a", 0.9), (5, 9, "a", 0.8), (11, 16, "a", 1.0), (17, 21, "b", 1.0)]
    found = [entity(text, *span) for span in spans]
    assert merged(text, found) == [entity(text, 0, 9, "a", 0.8), *found[2:]]


async def test_labels_of_the_profile_stand_in_for_missing_ones(open_engine: OpenEngine, gliner_path: str) -> None:
    async with open_engine("gliner", gliner_path, loadtime={"default_labels": LABELS}, runtime=LOW) as run:
        implied = (await run(extract(texts(4)))).output.items
        named = (await run(extract(texts(4), labels=LABELS, options=LOW))).output.items
        assert implied == named
    async with open_engine("gliner", gliner_path) as run:
        with pytest.raises(WorkError, match="are needed") as refused:
            await run(extract(["a"]))
        assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "params.labels")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"colour": 1}, "is no option"),
    "type": ({"threshold": "high"}, "must be a number"),
    "flag": ({"multi_label": 1}, "must be a boolean"),
    "range": ({"threshold": 1.5}, "from 0 to 1"),
    "relation_labels": ({"relation_labels": ["in"]}, "finds no relations"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_an_option_without_meaning_is_refused_by_name(
    open_engine: OpenEngine, gliner_path: str, case: str
) -> None:
    options, message = REFUSED[case]
    async with open_engine("gliner", gliner_path) as run:
        with pytest.raises(WorkError, match=message) as refused:
            await run(extract(["a"], labels=LABELS, options=options))
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", f"params.options.{next(iter(options))}")


async def test_relations_are_those_of_the_library(open_engine: OpenEngine, relex_path: str) -> None:
    library = GLiNER.from_pretrained(relex_path).eval()
    given_texts, wanted = texts(8, seed=2), ["in", "of"]
    async with open_engine("gliner", relex_path) as run:
        options = {**LOW, "relation_labels": wanted, "relation_threshold": 0.4}
        reply = await run(extract(given_texts, labels=LABELS, options=options))
        without = await run(extract(given_texts, labels=LABELS, options=LOW))
    count = 0
    for text, result, plain in zip(given_texts, reply.output.items, without.output.items, strict=True):
        entities, relations = library.inference([text], LABELS, wanted, threshold=0.35, relation_threshold=0.4)
        assert same(result["entities"], entities[0])
        found = sorted((r["head"], r["relation"], r["tail"]) for r in result["relations"])
        assert found == sorted((r["head"]["text"], r["relation"], r["tail"]["text"]) for r in relations[0])
        count += len(found)
        assert plain["relations"] == []
    assert count > 5


@pytest.mark.parametrize("fields", [{"source": "/nowhere"}, {"source": "", "loadtime": {"pooling": "x"}}])
async def test_a_model_that_cannot_be_served_is_refused_for_good(open_engine: OpenEngine, fields: Any) -> None:
    with pytest.raises(EngineLoadError) as refused:
        async with open_engine("gliner", **fields):
            pass
    assert refused.value.permanent

"""Entities of spaCy's real English pipeline: as the library finds them, at the places where they stand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import spacy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines import embedded
from engines.adapters import create
from engines.adapters.base import EngineLoadError, WorkError
from engines.protocol.catalog import ModelEntry, Profile
from engines.protocol.work import EncodeWork, Item
from tests.engines.extraction.helpers import HARD, SPACY, OpenEngine, exact, extract
from tests.engines.retrieval.helpers import Recorder

TEXTS = (
    "Apple is looking at buying a U.K. startup for $1 billion, said Tim Cook in Paris on Monday.",
    "Barack Obama was born in Hawaii.",
    "nothing to see here",
    "Angela Merkel met 27 leaders at the United Nations in New York on 3 May 2019, at 9 a.m.",
    "   ",
    "",
    "War and Peace was written by Leo Tolstoy.\n\nIt has 1,225 pages.",
)


@pytest.fixture(scope="module")
def pipeline() -> Any:
    """The library's own pipeline, nothing left out."""
    return spacy.load(embedded.prepare(SPACY))


@pytest.fixture(scope="module")
def find() -> Iterator[Callable[..., Any]]:
    """``find(texts, **fields)`` gives the results of one request."""
    profile = Profile(name="default", engine="spacy", adapter_path="tests", source=SPACY)
    engine = create(ModelEntry(name="tested", tasks=("extract",), profiles={"default": profile}), profile)
    with asyncio.Runner() as runner:
        runner.run(engine.load())

        def run(texts: list[str | None], **fields: Any) -> Any:
            reply = Recorder()
            runner.run(engine.run(extract(texts, **fields), reply))
            return reply.output.items

        yield run
        runner.run(engine.close())


def spans(doc: Any) -> list[tuple[str, str, int, int]]:
    return [(span.text, span.label_, span.start_char, span.end_char) for span in doc.ents]


def test_entities_are_those_of_the_library(find: Any, pipeline: Any) -> None:
    results = find(list(TEXTS))
    found = [[(e["text"], e["label"], e["start"], e["end"]) for e in result["entities"]] for result in results]
    assert found == [spans(pipeline(text)) for text in TEXTS]
    assert sum(map(len, found)) >= 12
    assert all(e["score"] == 1.0 for result in results for e in result["entities"])
    assert all("error" not in result for result in results)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from((*HARD, "Barack Obama ", "in Paris. ", "New York ", "$5 ")), max_size=12)))
def test_offsets_slice_the_text_whatever_it_is_made_of(find: Any, pieces: list[list[str]]) -> None:
    texts = ["".join(of_text) for of_text in pieces]
    for text, result in zip(texts, find(texts), strict=True):
        assert exact(text, result)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=80))
def test_offsets_slice_any_text(find: Any, text: str) -> None:
    (result,) = find([text])
    assert exact(text, result)


@pytest.mark.parametrize("piece", HARD)
def test_offsets_count_code_points(find: Any, piece: str) -> None:
    text = f"{piece * 3} Barack Obama was born in Hawaii."
    (result,) = find([text])
    (person,) = [e for e in result["entities"] if "Obama" in e["text"]]
    assert text[person["start"] : person["end"]] == person["text"]
    assert person["end"] == text.index("Obama") + len("Obama")  # neither bytes nor UTF-16 units


def test_labels_filter_whatever_their_case(find: Any) -> None:
    everything, some = find([TEXTS[0]])[0]["entities"], find([TEXTS[0]], labels=["gpe", "PERSON"])[0]["entities"]
    assert some == [e for e in everything if e["label"] in ("GPE", "PERSON")]
    assert 0 < len(some) < len(everything)


def test_a_label_that_the_model_cannot_give_is_refused_with_those_it_can(find: Any) -> None:
    with pytest.raises(WorkError, match=r"'colour' is no label.*GPE.*PERSON") as refused:
        find([TEXTS[0]], labels=["PERSON", "colour"])
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "params.labels")


MEANINGLESS: dict[str, tuple[dict[str, Any], str]] = {
    "a schema": ({"output_schema": {"type": "object"}}, "params.output_schema"),
    "an instruction": ({"instruction": "Find birds."}, "params.instruction"),
    "an option": ({"options": {"threshold": 0.5}}, "params.options.threshold"),
}


@pytest.mark.parametrize("case", MEANINGLESS)
def test_a_parameter_without_meaning_is_refused_by_name(find: Any, case: str) -> None:
    fields, param = MEANINGLESS[case]
    with pytest.raises(WorkError) as refused:
        find([TEXTS[0]], **fields)
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", param)
    assert param in refused.value.message


def test_an_item_that_cannot_be_read_has_an_error_and_the_others_their_results(find: Any) -> None:
    results = find([TEXTS[1], None, "a" * 1_000_001, TEXTS[3]])
    assert [("error" in result) for result in results] == [False, True, True, False]
    assert results[1]["error"] == {"code": "INVALID_INPUT", "message": "the item has no text"}
    assert "1000001 characters" in results[2]["error"]["message"]
    assert results[0]["entities"]
    assert results[3]["entities"]


def test_items_without_any_text_are_answered(find: Any) -> None:
    assert find([None, ""]) == [
        {"error": {"code": "INVALID_INPUT", "message": "the item has no text"}},
        {"entities": []},
    ]


async def test_requests_side_by_side_get_their_own_results(open_engine: OpenEngine) -> None:
    names = ["Anna Berg", "Peter Smith", "Mary Jones", "John Brown"]
    async with open_engine("spacy", SPACY) as run:
        works = [
            extract([f"{name} lives in Berlin with {i} cats." for i in range(n + 1)]) for n, name in enumerate(names)
        ]
        replies = await asyncio.gather(*(run(work) for work in works))
    for n, (name, reply) in enumerate(zip(names, replies, strict=True)):
        assert len(reply.output.items) == n + 1
        assert all(result["entities"][0]["text"] == name for result in reply.output.items)
        assert reply.usage.prompt_tokens > 0


async def test_other_work_is_refused(open_engine: OpenEngine) -> None:
    async with open_engine("spacy", SPACY) as run:
        with pytest.raises(WorkError, match="extracts and does nothing else"):
            await run(EncodeWork(request_id="r", model="tested", items=[Item(text="a")]))


@pytest.mark.parametrize(
    "fields", [{"source": "/nowhere"}, {"source": SPACY, "loadtime": {"pooling": "x"}}, {"source": "package:none"}]
)
async def test_a_model_that_cannot_be_served_is_refused_for_good(open_engine: OpenEngine, fields: Any) -> None:
    with pytest.raises(EngineLoadError) as refused:
        async with open_engine("spacy", **fields):
            pass
    assert refused.value.permanent

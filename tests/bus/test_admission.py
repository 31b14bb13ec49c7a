"""How much a worker takes, and what work weighs."""

from __future__ import annotations

from engines.protocol.cost import EXTRACTED_TOKENS, SIDE_BY_SIDE, at_once, cost
from engines.protocol.work import (
    EncodeWork,
    ExtractWork,
    GenerateWork,
    Image,
    Item,
    Sampling,
    ScoreWork,
    TranscribeWork,
    Work,
)
from engines.worker.admission import OVERCOMMIT, SLACK, Admission

from .conftest import generate


def tokens(count: int) -> GenerateWork:
    """Generation work that weighs ``count`` tokens."""
    work = generate("")
    work.sampling = Sampling(max_tokens=count - 1)
    assert cost(work) == count
    return work


def test_generation_weighs_its_prompt_and_all_that_may_come_out():
    work = generate("x" * 400)
    work.sampling = Sampling(max_tokens=50, n=2, best_of=3)
    assert cost(work) == 1 + 100 + 150
    said = {"role": "user", "content": [{"type": "text", "text": "y" * 80}]}
    chat = GenerateWork(
        request_id="r", model="m", messages=[said], images=[Image(b"")], sampling=Sampling(max_tokens=10)
    )
    assert cost(chat) == 1 + 1 + 1 + 20 + 1024 + 10


def test_other_work_weighs_what_goes_in():
    items = [Item(text="x" * 40), Item(document=b"y" * 80)]
    rows: list[tuple[Work, int]] = [
        (EncodeWork(request_id="r", model="m", items=items), 1 + 11 + 21),
        (ScoreWork(request_id="r", model="m", query=Item(text="q" * 8), items=items), 1 + 11 + 21 + 2 * 3),
        (TranscribeWork(request_id="r", model="m", audio=b"z" * 2560), 11),
    ]
    assert [cost(work) for work, _ in rows] == [weight for _, weight in rows]


def test_extraction_weighs_what_is_read_or_generated_for_each_item():
    items = [Item(text="x" * 40)] * 64
    labelled = ExtractWork(request_id="r", model="m", items=items, labels=["y" * 8, "z" * 4])
    assert (cost(labelled), at_once(labelled)) == (1 + 64 * 11 + 64 * 3, 0)
    schema = {"type": "object"}
    generated = ExtractWork(request_id="r", model="m", items=items, output_schema=schema)
    assert cost(generated) == 1 + 64 * (11 + 1 + EXTRACTED_TOKENS)
    assert at_once(generated) == cost(generated) * SIDE_BY_SIDE // 64
    short = ExtractWork(request_id="r", model="m", items=items, output_schema=schema, options={"max_new_tokens": 8})
    assert cost(short) == 1 + 64 * (11 + 1 + 8)


def test_extraction_by_generating_takes_room_from_the_budget():
    admission = Admission(100, 20_000, lambda: 0)
    work = ExtractWork(request_id="r", model="m", items=[Item(text="x")] * 4096, output_schema={"type": "object"})
    admission.begin(work)
    assert admission.tokens == at_once(work) > 16 * EXTRACTED_TOKENS
    assert not admission.fits(tokens(5000), direct=True)
    admission.end("r")
    assert admission.tokens == 0


def test_without_a_budget_only_the_number_of_requests_is_limited():
    admission = Admission(2, 0, lambda: 0)
    for _ in range(2):
        work = tokens(1_000_000)
        assert admission.fits(work, direct=True)
        admission.begin(work)
    assert admission.room() == 0
    assert not admission.fits(tokens(1), direct=True)
    assert admission.fits(tokens(1), direct=False)


def test_a_budget_bounds_what_is_taken_and_what_is_asked_for():
    admission = Admission(100, 1000, lambda: 0)
    first = tokens(400)
    admission.begin(first)
    assert admission.room() == 1
    assert admission.fits(tokens(600), direct=True)
    assert not admission.fits(tokens(601), direct=True)
    assert admission.fits(tokens(601), direct=False)
    assert not admission.fits(tokens(SLACK * 1000 - 399), direct=False)
    admission.end(first.request_id)
    assert admission.tokens == 0
    assert admission.room() == 2


def test_one_that_is_larger_than_the_budget_runs_alone():
    admission = Admission(100, 1000, lambda: 0)
    assert admission.fits(tokens(5000), direct=True)
    admission.begin(tokens(5000))
    assert admission.room() == 0
    assert not admission.fits(tokens(5), direct=True)


def test_the_budget_is_several_times_the_caches_of_the_engines():
    admission = Admission(100, 0, lambda: 100)
    admission.begin(tokens(100))
    assert admission.fits(tokens(100 * (OVERCOMMIT - 1)), direct=True)
    assert not admission.fits(tokens(100 * (OVERCOMMIT - 1) + 1), direct=True)


def test_what_is_no_generation_needs_no_cache():
    admission = Admission(100, 10, lambda: 0)
    admission.begin(tokens(10))
    assert admission.fits(EncodeWork(request_id="r", model="m", items=[Item(text="x" * 4000)]), direct=True)

"""Vectors by vLLM's pooling runner are those of the library; one engine with the real MiniLM serves all tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
from sentence_transformers import SentenceTransformer

from engines.adapters.base import Engine, WorkError
from engines.protocol.work import EncodeWork, GenerateWork, Image, Item, Sampling, Work
from tests.engines.retrieval.helpers import MINILM, Recorder, array, cosines, encode, pooling_engine, score, sentences

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONGEST = 100
PENDING = 3000
QUERY = {"query_template": "{instruction}: {text}", "query_max_length": 8}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[Engine]:
    """In the precision that this machine gets by default."""
    made = pooling_engine(
        MINILM,
        tasks=("encode", "score"),
        dims={"dense": 384},
        max_sequence_length=LONGEST,
        runtime=QUERY,
        loadtime={"max_pending_tokens": PENDING},
    )
    await made.load()
    yield made
    await made.close()


@pytest.fixture(scope="module")
def library(minilm_path: str) -> SentenceTransformer:
    """The library's model in float32, with the limit of the entry."""
    model = SentenceTransformer(minilm_path, device="cpu")
    model.max_seq_length = LONGEST
    return model


class Waited(Recorder):
    """Says when the work has been admitted."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = asyncio.Event()

    def admitted(self, *, prompt_tokens: int = 0) -> None:
        self.taken.set()


async def answer(engine: Engine, work: Work) -> Recorder:
    reply = Recorder()
    await engine.run(work, reply)
    return reply


async def test_vectors_and_tokens_are_the_librarys(engine: Engine, library: SentenceTransformer) -> None:
    texts = sentences(40)
    reply = await answer(engine, encode(texts))
    assert reply.events == ["admitted", "completed"]
    got = array(reply.output.dense)
    assert cosines(got, library.encode(texts)).min() >= 0.999
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)
    tokens = library.tokenizer(texts, truncation=True, max_length=LONGEST)["input_ids"]
    assert reply.usage.prompt_tokens == sum(map(len, tokens))
    assert reply.timing.total_ms >= reply.timing.inference_ms > 0


async def test_requests_that_vllm_runs_together_keep_their_answers(
    engine: Engine, library: SentenceTransformer
) -> None:
    texts = sentences(20, seed=1)
    replies = await asyncio.gather(*(answer(engine, encode([text, texts[0]])) for text in texts))
    got = np.stack([array(reply.output.dense) for reply in replies])
    expected = library.encode(texts)
    assert cosines(got[:, 0], expected).min() >= 0.999
    assert cosines(got[:, 1], expected[:1]).min() >= 0.999


async def test_a_query_gets_template_instruction_and_limit(engine: Engine, library: SentenceTransformer) -> None:
    texts = ["red cat", "the engine of a river city in france"]
    got = array((await answer(engine, encode(texts, is_query=True, instruction="find"))).output.dense)
    library.max_seq_length = QUERY["query_max_length"]
    expected = library.encode([f"find: {text}" for text in texts])
    library.max_seq_length = LONGEST
    assert cosines(got, expected).min() >= 0.999


@pytest.mark.parametrize("dtype", ["float16", "int8", "binary"])
async def test_output_dtypes(engine: Engine, dtype: str) -> None:
    output = (await answer(engine, encode(["red cat", "sun"], output_dtype=dtype))).output
    assert (output.dense.dtype, output.dense.shape[1]) == {
        "float16": ("<f2", 384),
        "int8": ("|i1", 384),
        "binary": ("|u1", 48),
    }[dtype]
    assert (output.output_dtype, output.dense_dims) == (dtype, 384)


async def test_an_item_that_it_cannot_read_fails_alone(engine: Engine, library: SentenceTransformer) -> None:
    items = [Item(text="red"), Item(text="a", images=[Image(b"png")]), Item(text="blue"), Item(), Item(document=b"pdf")]
    output = (await answer(engine, EncodeWork(request_id="r", model="tested", items=items))).output
    assert {index: error.code for index, error in output.errors.items()} == dict.fromkeys((1, 3, 4), "INVALID_INPUT")
    assert cosines(array(output.dense)[[0, 2]], library.encode(["red", "blue"])).min() >= 0.999

    reply = await answer(engine, EncodeWork(request_id="r", model="tested", items=[Item(), Item()]))
    assert sorted(reply.output.errors) == [0, 1]
    assert reply.usage.prompt_tokens == 0


async def test_scores_are_the_cosines_of_the_vectors(engine: Engine, library: SentenceTransformer) -> None:
    texts = sentences(12)
    work = score("capital of france", texts, instruction="find", max_sequence_length=16)
    output = (await answer(engine, work)).output
    query = library.encode("find: capital of france")
    library.max_seq_length = 16
    expected = library.similarity(query, library.encode(texts))[0]
    library.max_seq_length = LONGEST
    assert output.kind == "similarity"
    np.testing.assert_allclose(output.scores, expected, atol=3e-3)


@pytest.mark.parametrize(
    ("work", "param", "message"),
    [
        (encode(["a"], output_types=("dense", "sparse")), "output_types", "no sparse output"),
        (encode(["a"], options={"depth": 1}), "params.options.depth", "is no option"),
        (score("a", ["b"], options={"depth": 1}), "options.depth", "is no option"),
        (
            EncodeWork(request_id="r", model="tested", items=[Item(text="a")], output_types=("multivector",)),
            "output_types",
            "no multivector output",
        ),
        (
            GenerateWork(request_id="r", model="tested", sampling=Sampling(max_tokens=1)),
            None,
            "does not do GenerateWork",
        ),
    ],
)
async def test_what_it_cannot_do_is_refused_by_name(
    engine: Engine, work: Work, param: str | None, message: str
) -> None:
    with pytest.raises(WorkError, match=message) as error:
        await answer(engine, work)
    assert error.value.code == "INVALID_INPUT"
    assert error.value.param == param


async def test_a_cancelled_request_leaves_nothing_behind(engine: Engine, library: SentenceTransformer) -> None:
    reply = Waited()
    task = asyncio.create_task(engine.run(encode(["red cat " * 60] * 200), reply))
    await asyncio.wait_for(reply.taken.wait(), 10)
    with pytest.raises(WorkError, match="are waiting already") as full:
        await answer(engine, encode(["one more"]))
    assert full.value.code == "RESOURCE_EXHAUSTED"
    assert full.value.retry_after

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (engine.status().pending_cost, engine.status().inflight_batches) == (0, 0)
    got = array((await asyncio.wait_for(answer(engine, encode(["sun"])), 10)).output.dense)
    assert cosines(got, library.encode(["sun"])).min() >= 0.999
    assert engine.status().queue_depth == 0

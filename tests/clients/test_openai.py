"""The unmodified OpenAI SDK against the real server and real models."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.live import CHAT_MODEL, EMBEDDING_MODEL, KEY

CAPITAL: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me the capital of France."}]


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(base_url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_chat_answers_with_right_words(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=CHAT_MODEL, messages=CAPITAL, max_tokens=24, temperature=0)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason in {"stop", "length"}
    assert answer.model == CHAT_MODEL
    assert answer.id.startswith("chatcmpl-")
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_streams_the_words_of_the_blocking_answer(client: openai.OpenAI) -> None:
    blocking = client.chat.completions.create(model=CHAT_MODEL, messages=CAPITAL, max_tokens=24, temperature=0)
    chunks = list(
        client.chat.completions.create(
            model=CHAT_MODEL,
            messages=CAPITAL,
            max_tokens=24,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    *spoken, usage = chunks
    deltas = [chunk.choices[0].delta for chunk in spoken]
    assert [delta.role for delta in deltas if delta.role] == ["assistant"]
    assert "".join(delta.content or "" for delta in deltas) == blocking.choices[0].message.content
    assert len([delta for delta in deltas if delta.content]) > 1
    reasons = [chunk.choices[0].finish_reason for chunk in spoken]
    assert reasons[-1] == blocking.choices[0].finish_reason
    assert set(reasons[:-1]) == {None}
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.model_dump() == (blocking.usage.model_dump() if blocking.usage else None)
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


def test_stream_helper_assembles_one_message(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=CHAT_MODEL, messages=CAPITAL, max_tokens=16, temperature=0) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.role == "assistant"
    assert "Paris" in (final.choices[0].message.content or "")


async def test_async_chat_blocking_and_streaming_agree(async_client: openai.AsyncOpenAI) -> None:
    blocking = await async_client.chat.completions.create(
        model=CHAT_MODEL, messages=CAPITAL, max_tokens=16, temperature=0
    )
    stream = await async_client.chat.completions.create(
        model=CHAT_MODEL, messages=CAPITAL, max_tokens=16, temperature=0, stream=True
    )
    streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert streamed == blocking.choices[0].message.content


def test_several_choices_stream_side_by_side(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=CHAT_MODEL, messages=CAPITAL, max_tokens=8, n=3, seed=7, temperature=1, stream=True
    )
    roles: dict[int, int] = {}
    endings: dict[int, int] = {}
    for chunk in stream:
        for choice in chunk.choices:
            roles[choice.index] = roles.get(choice.index, 0) + (choice.delta.role is not None)
            endings[choice.index] = endings.get(choice.index, 0) + (choice.finish_reason is not None)
    assert roles == endings == {0: 1, 1: 1, 2: 1}


def test_stop_ends_the_answer_before_the_stop_string(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=CHAT_MODEL, messages=CAPITAL, max_tokens=24, temperature=0, stop=["Paris"]
    )
    assert "Paris" not in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"


def test_logprobs_are_probabilities_of_the_words_said(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=CHAT_MODEL, messages=CAPITAL, max_tokens=6, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    said = b"".join(bytes(token.bytes or []) for token in logprobs.content).decode()
    assert said == answer.choices[0].message.content
    for token in logprobs.content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert math.isclose(max(top.logprob for top in token.top_logprobs), token.logprob, abs_tol=1e-6)


def test_logprobs_of_a_stream_are_those_of_the_words_in_each_chunk(client: openai.OpenAI) -> None:
    options = {"model": CHAT_MODEL, "messages": CAPITAL, "max_tokens": 60, "temperature": 0, "logprobs": True}
    whole = client.chat.completions.create(**options).choices[0]  # type: ignore[call-overload]  # options of any type
    assert whole.finish_reason == "stop"
    assert "".join(token.token for token in whole.logprobs.content) == whole.message.content
    said = told = ""
    for chunk in client.chat.completions.create(**options, stream=True):  # type: ignore[call-overload]
        choice = chunk.choices[0]
        said += choice.delta.content or ""
        told += "".join(token.token for token in (choice.logprobs.content if choice.logprobs else ()))
        assert said.startswith(told)
    assert said == told == whole.message.content


def test_completions_blocking_and_streaming_agree(client: openai.OpenAI) -> None:
    prompt = "The capital of France is"
    blocking = client.completions.create(model=CHAT_MODEL, prompt=prompt, max_tokens=8, temperature=0)
    stream = client.completions.create(model=CHAT_MODEL, prompt=prompt, max_tokens=8, temperature=0, stream=True)
    assert "Paris" in blocking.choices[0].text
    assert "".join(chunk.choices[0].text for chunk in stream) == blocking.choices[0].text
    assert blocking.object == "text_completion"


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings_are_unit_vectors_near_their_meaning(client: openai.OpenAI, encoding: str) -> None:
    texts = ["A cat sits on the mat.", "A kitten rests on a rug.", "The bond market fell on Tuesday."]
    options = {} if encoding == "base64" else {"encoding_format": "float"}  # the SDK asks for base64 by itself
    reply = client.embeddings.create(model=EMBEDDING_MODEL, input=texts, **options)  # type: ignore[arg-type]
    assert [item.index for item in reply.data] == [0, 1, 2]
    vectors = [item.embedding for item in reply.data]
    assert [len(vector) for vector in vectors] == [384, 384, 384]
    assert all(math.isclose(math.hypot(*vector), 1.0, abs_tol=1e-4) for vector in vectors)
    cat, kitten, bonds = vectors
    assert dot(cat, kitten) > 0.5 > dot(cat, bonds)
    assert reply.usage.prompt_tokens > 0


def test_float_and_base64_embeddings_are_the_same_numbers(client: openai.OpenAI) -> None:
    as_base64 = client.embeddings.create(model=EMBEDDING_MODEL, input="one text").data[0].embedding
    as_floats = client.embeddings.create(model=EMBEDDING_MODEL, input="one text", encoding_format="float")
    assert as_base64 == pytest.approx(as_floats.data[0].embedding, abs=1e-6)


def test_models_are_listed_and_retrieved_by_names_with_slashes(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert {CHAT_MODEL, EMBEDDING_MODEL} <= set(names)
    assert client.models.retrieve(EMBEDDING_MODEL).id == EMBEDDING_MODEL


def test_request_ids_are_readable(client: openai.OpenAI) -> None:
    first, second = client.models.list(), client.models.list()
    assert first._request_id
    assert first._request_id != second._request_id


def test_unknown_model_is_a_not_found_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="nobody/nothing", messages=CAPITAL)
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    assert caught.value.request_id


def test_bad_field_is_a_bad_request_that_names_it(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=CHAT_MODEL, messages=CAPITAL, temperature=-1)
    assert caught.value.param == "temperature"
    assert caught.value.code == "invalid_request"


def test_unsupported_field_is_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=CHAT_MODEL, messages=CAPITAL, store=True)
    assert caught.value.param == "store"
    assert caught.value.code == "unsupported_field"


def test_prompt_beyond_the_context_says_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=CHAT_MODEL, messages=[{"role": "user", "content": "word " * 20_000}], max_tokens=8
        )
    assert caught.value.type == "context_length_exceeded"


def test_moderations_are_honestly_not_implemented(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.moderations.create(input="some text")
    assert caught.value.status_code == 501
    assert caught.value.code == "not_implemented"


def dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))

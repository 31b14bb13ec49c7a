"""Text: equal to the library's, equal streamed and whole, cut where it has to be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engines.adapters.base import Engine, WorkError
from engines.protocol.work import Grammar
from tests.engines.generation.helpers import Recorder, answer, user, work

PROMPTS = ["Once upon a time there was", "def fibonacci(n):\n"]


async def test_greedy_text_equals_that_of_transformers(engine: Engine, reference: tuple[Any, Any]) -> None:
    tokenizer, model = reference
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt")
        expected = model.generate(**ids, max_new_tokens=24, do_sample=False)[0][ids.input_ids.shape[1] :]
        got = await answer(engine, work(prompt))
        assert got.text == tokenizer.decode(expected, skip_special_tokens=True), prompt
        assert got.prompt_tokens == ids.input_ids.shape[1]


async def test_a_chat_is_rendered_with_the_models_own_template(engine: Engine, reference: tuple[Any, Any]) -> None:
    tokenizer, model = reference
    messages = user("What is the capital of France?")
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    expected = model.generate(**ids, max_new_tokens=24, do_sample=False)[0][ids.input_ids.shape[1] :]
    got = await answer(engine, work(messages))
    assert got.prompt_tokens == ids.input_ids.shape[1]
    assert got.text == tokenizer.decode(expected, skip_special_tokens=True)
    assert "Paris" in got.text
    assert got.choices[0].finish == "stop"


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "seed": 7, "top_p": 0.9}, {"stop": ("little",)}])
async def test_streamed_text_equals_whole_text(engine: Engine, sampling: dict[str, Any]) -> None:
    prompt = "Once upon a time"
    whole = await answer(engine, work(prompt, sampling=sampling))
    streamed = await answer(engine, work(prompt, sampling=sampling, stream=True))
    assert streamed.text == whole.text
    assert streamed.usage == whole.usage
    assert len(whole.choices[0].pieces) == 1
    assert len(streamed.choices[0].pieces) > 1
    assert streamed.choices[0].tokens == whole.choices[0].tokens == whole.usage.completion_tokens


async def test_a_stop_string_never_shows_and_nothing_before_it_is_lost(engine: Engine) -> None:
    plain = (await answer(engine, work("1, 2, 3, 4,", sampling={"max_tokens": 40}))).text
    stop = plain[9:16]
    for stream in (False, True):
        got = await answer(engine, work("1, 2, 3, 4,", sampling={"max_tokens": 40, "stop": (stop,)}, stream=stream))
        assert got.text == plain[: plain.index(stop)]
        assert got.choices[0].finish == "stop"


async def test_text_that_only_begins_like_a_stop_string_is_released(engine: Engine) -> None:
    plain = (await answer(engine, work("1, 2, 3, 4,"))).text
    stop = plain[-3:] + "§"
    got = await answer(engine, work("1, 2, 3, 4,", sampling={"stop": (stop,)}, stream=True))
    assert got.text == plain
    assert got.choices[0].finish == "length"


async def test_characters_of_several_tokens_arrive_whole(engine: Engine) -> None:
    emoji = "🙂🎉é漢"
    constraint = f"({emoji}){{3}}"
    sampling = {"max_tokens": 80}
    got = await answer(engine, work("Say: ", sampling=sampling, grammar=Grammar("regex", constraint), stream=True))
    assert got.text == emoji * 3
    assert got.choices[0].tokens > len(emoji * 3)


async def test_half_a_character_at_the_end_is_not_sent(engine: Engine) -> None:
    for stream in (False, True):
        item = work("Say: ", sampling={"max_tokens": 1}, grammar=Grammar("regex", "🙂+"), stream=stream)
        got = await answer(engine, item)
        assert got.text == ""
        assert got.choices[0].finish == "length"


async def test_each_choice_has_its_own_text_and_one_end(engine: Engine) -> None:
    sampling = {"n": 3, "temperature": 1.0, "seed": 3}
    whole = await answer(engine, work("Once upon a time", sampling=sampling))
    streamed = await answer(engine, work("Once upon a time", sampling=sampling, stream=True))
    assert sorted(whole.choices) == sorted(streamed.choices) == [0, 1, 2]
    texts = [whole.choices[index].text for index in range(3)]
    assert len(set(texts)) == 3
    assert texts == [streamed.choices[index].text for index in range(3)]
    assert whole.usage.completion_tokens == 72
    assert whole.usage.prompt_tokens == whole.prompt_tokens


@pytest.mark.parametrize("seed", [11, -1])
async def test_the_same_seed_gives_the_same_text_beside_other_requests(engine: Engine, seed: int) -> None:
    sampling = {"temperature": 1.0, "seed": seed}
    alone = await answer(engine, work("Once upon a time", sampling=sampling))
    others = [work(f"Number {index}", sampling={"temperature": 1.0}) for index in range(4)]
    together = await asyncio.gather(
        answer(engine, work("Once upon a time", sampling=sampling)), *(answer(engine, other) for other in others)
    )
    assert together[0].text == alone.text
    different = await answer(engine, work("Once upon a time", sampling={**sampling, "seed": 12}))
    assert different.text != alone.text


async def test_a_prompt_as_long_as_the_context_is_refused_with_both_numbers(engine: Engine) -> None:
    with pytest.raises(WorkError) as refused:
        await answer(engine, work("word " * 3000))
    assert refused.value.code == "context_exceeded"
    assert refused.value.details["context_length"] == 2048
    assert refused.value.details["prompt_tokens"] >= 3000
    assert "2048" in refused.value.message
    assert str(refused.value.details["prompt_tokens"]) in refused.value.message


async def test_an_explicit_limit_that_does_not_fit_is_refused_and_a_default_is_clamped(engine: Engine) -> None:
    prompt = "word " * 2000
    with pytest.raises(WorkError) as refused:
        await answer(engine, work(prompt, sampling={"max_tokens": 500}))
    assert refused.value.code == "context_exceeded"
    assert refused.value.details["max_tokens"] == 500
    sampling = {"max_tokens": 500, "max_tokens_is_default": True, "ignore_eos": True}
    got = await answer(engine, work(prompt, sampling=sampling))
    assert got.usage.completion_tokens == 2048 - got.prompt_tokens


async def test_stop_tokens_end_the_text(engine: Engine) -> None:
    plain = await answer(engine, work("1, 2, 3, 4,", sampling={"logprobs": 0}))
    comma = next(index for index, entry in enumerate(plain.choices[0].logprobs) if entry.token == ",")
    got = await answer(engine, work("1, 2, 3, 4,", sampling={"stop_tokens": (",",)}))
    assert got.choices[0].finish == "stop"
    assert got.text == "".join(entry.token for entry in plain.choices[0].logprobs[:comma])


async def test_sampling_parameters_reach_the_engine(engine: Engine) -> None:
    banned = await answer(engine, work("The capital of France is", sampling={"max_tokens": 4, "logprobs": 0}))
    first = banned.choices[0].logprobs[0].token
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(engine._llm.model_config.model)  # type: ignore[attr-defined]  # white box
    index = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(first))[0]
    biased = await answer(
        engine, work("The capital of France is", sampling={"max_tokens": 4, "logit_bias": {index: -100.0}})
    )
    assert not biased.text.startswith(first)
    longer = await answer(engine, work(user("Say hi."), sampling={"min_tokens": 40, "max_tokens": 48}))
    assert longer.usage.completion_tokens >= 40
    penalised = await answer(engine, work("la la la la la", sampling={"repetition_penalty": 1.9}))
    assert penalised.text != (await answer(engine, work("la la la la la"))).text


async def test_a_biased_token_outside_the_vocabulary_is_refused_by_name(engine: Engine) -> None:
    with pytest.raises(WorkError) as refused:
        await answer(engine, work("Hello", sampling={"logit_bias": {49152: 1.0}}))
    assert (refused.value.code, refused.value.param) == ("invalid_request", "logit_bias")
    assert "49152" in refused.value.message


async def test_leaving_ends_the_generation_within_a_step(engine: Engine) -> None:
    item = work("Once upon a time", sampling={"max_tokens": 1000, "min_tokens": 1000}, stream=True)
    reply = Recorder()
    task = asyncio.create_task(engine.run(item, reply))
    while not reply.choices:  # noqa: ASYNC110  # the reply is no event
        await asyncio.sleep(0.01)
    llm = engine._llm  # type: ignore[attr-defined]  # white box
    assert llm.get_num_unfinished_requests() == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert llm.get_num_unfinished_requests() == 0
    assert engine.status().pending_cost == 0
    assert reply.choices[0].tokens < 500


async def test_leaving_a_whole_answer_ends_the_generation_too(engine: Engine) -> None:
    item = work("Once upon a time", sampling={"max_tokens": 1000, "min_tokens": 1000, "n": 2, "seed": 1})
    task = asyncio.create_task(answer(engine, item))
    llm = engine._llm  # type: ignore[attr-defined]  # white box
    while llm.get_num_unfinished_requests() < 2:  # noqa: ASYNC110  # the engine has no event for it
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert llm.get_num_unfinished_requests() == 0


async def test_the_best_of_several_candidates_are_the_most_likely_ones(engine: Engine) -> None:
    shared = {"temperature": 1.0, "seed": 5, "logprobs": 0}
    all_four = await answer(engine, work("Once upon a time", sampling={**shared, "n": 4}))
    totals = {index: sum(entry.logprob for entry in heard.logprobs) for index, heard in all_four.choices.items()}
    order = sorted(totals, key=lambda index: totals[index], reverse=True)
    best = await answer(engine, work("Once upon a time", sampling={**shared, "n": 2, "best_of": 4}))
    assert [best.choices[0].text, best.choices[1].text] == [all_four.choices[index].text for index in order[:2]]
    assert best.usage.completion_tokens == all_four.usage.completion_tokens


async def test_log_probabilities_are_those_of_the_model(engine: Engine, reference: tuple[Any, Any]) -> None:
    import torch

    tokenizer, model = reference
    prompt = "The capital of France is"
    ids = tokenizer(prompt, return_tensors="pt")
    expected = model(**ids).logits[0, -1].log_softmax(-1)
    values, indices = torch.topk(expected, 5)
    got = await answer(engine, work(prompt, sampling={"max_tokens": 1, "logprobs": 5}))
    (entry,) = got.choices[0].logprobs
    assert entry.token == tokenizer.decode(indices[0]) == entry.top[0].token
    assert entry.logprob == pytest.approx(values[0].item(), abs=1e-3)
    assert [alternative.logprob for alternative in entry.top] == pytest.approx(values.tolist(), abs=1e-3)
    assert [alternative.bytes.decode() for alternative in entry.top] == [tokenizer.decode(index) for index in indices]


@pytest.mark.parametrize("sampling", [{}, {"stop": ("lo",)}])
async def test_log_probabilities_describe_the_text_they_come_with(engine: Engine, sampling: dict[str, Any]) -> None:
    options = {"max_tokens": 40, "logprobs": 2, **sampling}
    whole = await answer(engine, work("Once upon a time", sampling=options))
    streamed = await answer(engine, work("Once upon a time", sampling=options, stream=True))
    assert [entry.token for entry in streamed.choices[0].logprobs] == [
        entry.token for entry in whole.choices[0].logprobs
    ]
    described = b"".join(entry.bytes for entry in whole.choices[0].logprobs)
    assert described.startswith(whole.text.encode())
    assert all(
        len(entry.top) == 2 and entry.top[0].logprob >= entry.top[1].logprob for entry in whole.choices[0].logprobs
    )
    sent = said = 0
    for text, entries in streamed.choices[0].aligned:
        said += len(text.encode())
        sent += sum(len(entry.bytes) for entry in entries)
        assert sent <= said or streamed.choices[0].aligned[-1] == (text, entries)


async def test_the_token_that_ends_an_answer_is_counted_and_not_described(engine: Engine) -> None:
    """OpenAI lists the tokens of the content; vLLM's own server lists the end of the turn too."""
    for stream in (False, True):
        item = work(user("What is the capital of France?"), sampling={"logprobs": 1}, stream=stream)
        got = await answer(engine, item)
        assert got.choices[0].finish == "stop"
        assert b"".join(entry.bytes for entry in got.choices[0].logprobs).decode() == got.text
        assert got.usage.completion_tokens == len(got.choices[0].logprobs) + 1

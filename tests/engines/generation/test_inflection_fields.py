"""Parameters that the second contract adds, each with its effect on real text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from engines.adapters.base import Engine, WorkError
from engines.adapters.vllm import caller_template
from engines.protocol.events import GenerateOutput
from engines.protocol.work import Grammar, Rendering
from tests.engines.generation.helpers import Recorder, answer, user, work

CAPITAL = user("What is the capital of France?")
STORY = "Once upon a time there was"


async def chat(engine: Engine, messages: list[dict[str, Any]] = CAPITAL, **rendering: Any) -> Recorder:
    return await answer(engine, work(messages, rendering=Rendering(**rendering)))


async def sampled(engine: Engine, prompt: str | list[dict[str, Any]] = STORY, **sampling: Any) -> Recorder:
    return await answer(engine, work(prompt, sampling=sampling))


async def constrained(engine: Engine, kind: Any, value: str, **sampling: Any) -> str:
    item = work(user("Name a colour."), sampling={"max_tokens": 40, **sampling}, grammar=Grammar(kind, value))
    return (await answer(engine, item)).text


async def refusal(engine: Engine, item: Any) -> WorkError:
    with pytest.raises(WorkError) as caught:
        await answer(engine, item)
    return caught.value


# --- sampling


async def test_min_p_of_one_leaves_the_likeliest_token_alone(engine: Engine) -> None:
    greedy = await sampled(engine)
    wild = await sampled(engine, temperature=2.0, seed=1)
    tamed = await sampled(engine, temperature=2.0, seed=1, min_p=1.0)
    assert tamed.text == greedy.text != wild.text


async def test_stop_token_ids_end_the_text(engine: Engine, reference: tuple[Any, Any]) -> None:
    tokenizer, _ = reference
    whole = await sampled(engine)
    tokens = tokenizer(whole.text, add_special_tokens=False).input_ids
    cut = await sampled(engine, stop_token_ids=(tokens[5],))
    first = tokens.index(tokens[5])
    assert cut.choices[0].finish == "stop"
    assert cut.choices[0].tokens == first + 1
    assert cut.text == tokenizer.decode(tokens[:first])


async def test_include_stop_str_in_output_keeps_what_ended_the_text(engine: Engine) -> None:
    word = (await sampled(engine)).text.split()[3]
    without = await sampled(engine, stop=(word,))
    kept = await sampled(engine, stop=(word,), include_stop_str_in_output=True)
    assert not without.text.endswith(word)
    assert kept.text == without.text + word


async def test_ignore_eos_goes_on_to_the_limit(engine: Engine) -> None:
    ended = await sampled(engine, CAPITAL)
    going = await sampled(engine, CAPITAL, ignore_eos=True)
    assert (ended.choices[0].finish, going.choices[0].finish) == ("stop", "length")
    assert ended.choices[0].tokens < going.choices[0].tokens == 24


async def test_skip_special_tokens_false_shows_them(engine: Engine) -> None:
    hidden = await sampled(engine, CAPITAL, ignore_eos=True, logprobs=0)
    shown = await sampled(engine, CAPITAL, ignore_eos=True, skip_special_tokens=False, logprobs=0)
    assert "<|im_end|>" not in hidden.text
    assert "<|im_end|>" in shown.text
    assert "".join(entry.token for entry in shown.choices[0].logprobs) == shown.text


async def test_allowed_token_ids_are_the_only_ones(engine: Engine, reference: tuple[Any, Any]) -> None:
    tokenizer, _ = reference
    allowed = tokenizer("yes no", add_special_tokens=False).input_ids
    got = await sampled(engine, allowed_token_ids=tuple(allowed), max_tokens=8)
    texts = {tokenizer.decode([token]) for token in allowed}
    assert got.text
    assert {text for text in got.text.replace(" ", "| ").replace("yes", "|yes").split("|") if text.strip()} <= texts


@pytest.mark.parametrize("name", ["allowed_token_ids", "stop_token_ids"])
async def test_token_ids_outside_the_vocabulary_are_refused(engine: Engine, name: str) -> None:
    error = await refusal(engine, work(STORY, sampling={name: (10_000_000,)}))
    assert (error.code, error.param) == ("invalid_request", name)


async def test_bad_words_are_not_said(engine: Engine) -> None:
    assert "Paris" in (await sampled(engine, CAPITAL)).text
    assert "Paris" not in (await sampled(engine, CAPITAL, bad_words=("Paris",))).text


async def test_spaces_between_special_tokens(engine: Engine, reference: tuple[Any, Any]) -> None:
    tokenizer, _ = reference
    only = {"allowed_token_ids": (tokenizer.convert_tokens_to_ids("<repo_name>"),), "max_tokens": 3, "ignore_eos": True}
    texts = [
        (await sampled(engine, **only, skip_special_tokens=False, spaces_between_special_tokens=spaces)).text
        for spaces in (True, False)
    ]
    assert texts[1] == "<repo_name>" * 3
    assert texts[0].replace(" ", "") == texts[1]


async def test_prompt_logprobs_are_those_of_transformers(engine: Engine, reference: tuple[Any, Any]) -> None:
    import torch

    tokenizer, model = reference
    ids = tokenizer(STORY, return_tensors="pt").input_ids
    with torch.no_grad():
        expected = torch.log_softmax(model(ids).logits[0], dim=-1)
    got = await sampled(engine, prompt_logprobs=2, max_tokens=1)
    assert isinstance(got.output, GenerateOutput)
    first, *rest = got.output.prompt_logprobs
    assert first is None
    assert len(rest) == ids.shape[1] - 1
    for place, token in enumerate(ids[0, 1:].tolist()):
        entries = rest[place]
        assert entries is not None and entries[0].id == token
        assert entries[0].token == tokenizer.decode([token])
        assert 2 <= len(entries) <= 3
        for entry in entries:
            assert entry.logprob == pytest.approx(float(expected[place, entry.id]), abs=1e-2)


async def test_tokens_are_named_by_their_ids(engine: Engine, reference: tuple[Any, Any]) -> None:
    tokenizer, _ = reference
    got = await sampled(engine, logprobs=2, tokens_as_ids=True)
    found = got.choices[0].logprobs
    ids = [int(entry.token.removeprefix("token_id:")) for entry in found]
    assert tokenizer.decode(ids) == got.text
    assert all(other.token.startswith("token_id:") for entry in found for other in entry.top)
    assert all(entry.top[0].token == entry.token for entry in found)


# --- beam search


async def test_beams_find_likelier_text_than_greed(engine: Engine) -> None:
    greedy = await sampled(engine, logprobs=0, max_tokens=12, ignore_eos=True)
    beams = await sampled(engine, logprobs=0, max_tokens=12, ignore_eos=True, beam_width=4, n=2)
    totals = [sum(entry.logprob for entry in beams.choices[index].logprobs) for index in (0, 1)]
    assert len(beams.choices) == 2
    assert beams.choices[0].text != beams.choices[1].text
    assert totals[0] >= totals[1]
    assert totals[0] >= sum(entry.logprob for entry in greedy.choices[0].logprobs) - 1e-3
    assert {choice.finish for choice in beams.choices.values()} == {"length"}


async def test_length_penalty_decides_between_short_and_long_beams(engine: Engine) -> None:
    lengths = {
        penalty: (await sampled(engine, CAPITAL, beam_width=4, length_penalty=penalty, max_tokens=20)).choices[0].tokens
        for penalty in (-8.0, 8.0)
    }
    assert lengths[-8.0] < lengths[8.0]


async def test_beams_that_are_too_many_are_refused(engine: Engine) -> None:
    error = await refusal(engine, work(STORY, sampling={"beam_width": 11}))
    assert error.code == "invalid_request"


# --- the prompt


async def test_truncate_prompt_tokens_keeps_the_end(engine: Engine) -> None:
    whole = await chat(engine)
    cut = await chat(engine, truncate_prompt_tokens=5)
    assert whole.prompt_tokens is not None and whole.prompt_tokens > 5
    assert cut.prompt_tokens == 5
    fitted = await chat(engine, user("word " * 3000), truncate_prompt_tokens=-1)
    assert fitted.prompt_tokens == 2048 - 24


async def test_add_generation_prompt_false_leaves_the_answer_unopened(engine: Engine) -> None:
    opened, unopened = await chat(engine), await chat(engine, add_generation_prompt=False)
    assert opened.prompt_tokens is not None and unopened.prompt_tokens is not None
    assert unopened.prompt_tokens < opened.prompt_tokens


async def test_continue_final_message_goes_on_with_it(engine: Engine) -> None:
    said = [*CAPITAL, {"role": "assistant", "content": "The capital of France is"}]
    got = await chat(engine, said, add_generation_prompt=False, continue_final_message=True)
    assert got.text.startswith(" Paris")


async def test_cache_salt_keeps_prefixes_apart(engine: Engine) -> None:
    long = user("All work and no play makes Jack a dull boy. " * 40)
    cached = [(await chat(engine, long, cache_salt=salt)).usage for salt in ("one", "one", "two", "two")]
    counts = [0 if usage is None else usage.cached_tokens for usage in cached]
    assert counts[0] == counts[2] == 0
    assert counts[1] == counts[3] > 0


async def test_documents_and_template_arguments_reach_the_template(engine: Engine) -> None:
    template = "{{ kind }}: {% for d in documents %}{{ d.title }} {{ d.text }};{% endfor %}{{ messages[0].content }}"
    documents = [{"title": "Sky", "text": "blue"}, {"title": "Sea", "text": "deep"}]
    options = Rendering(chat_template=template, documents=documents)
    got = await answer(engine, work(user("hi"), rendering=options, chat_template_kwargs={"kind": "facts"}))
    same = await answer(engine, work("facts: Sky blue;Sea deep;hi"))
    assert (got.prompt_tokens, got.text) == (same.prompt_tokens, same.text)


async def test_a_callers_template_continues_the_final_message(engine: Engine) -> None:
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }} [end]{% endfor %}"
    said = [*CAPITAL, {"role": "assistant", "content": "It is"}]
    got = await chat(engine, said, chat_template=template, continue_final_message=True, add_generation_prompt=False)
    same = await answer(engine, work("[user] What is the capital of France? [end][assistant] It is"))
    assert (got.prompt_tokens, got.text) == (same.prompt_tokens, same.text)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 2000000 }}",
        "{{ 'x' * 20000000000 }}",
        "{{ '\\ud800' }}",
        "{% set n = namespace(v='a') %}{% for i in range(40) %}{% set n.v = n.v ~ n.v %}{% endfor %}{{ n.v }}",
        "{{ 2 ** (2 ** 40) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ '%1000000000d'|format(1) }}",
        "{{ " + "(" * 60_000,
        "{{ cycler.__init__.__globals__ }}",
        "{% include 'x' %}",
        "{{ ''.__class__ }}",
        "{{ raise_exception('no') }}",
        "{% broken",
    ],
)
async def test_hostile_templates_are_refused(engine: Engine, template: str) -> None:
    error = await refusal(engine, work(user("hi"), rendering=Rendering(chat_template=template)))
    assert (error.code, error.param) == ("invalid_request", "chat_template")


async def test_templates_are_rendered_as_transformers_does(reference: tuple[Any, Any]) -> None:
    tokenizer, _ = reference
    variables = {"messages": CAPITAL, "add_generation_prompt": True}
    text = await caller_template.render(tokenizer.chat_template, variables)
    assert text == tokenizer.apply_chat_template(CAPITAL, add_generation_prompt=True, tokenize=False)


async def test_priority_needs_an_engine_that_has_it(engine: Engine) -> None:
    error = await refusal(engine, work(STORY, priority=1))
    assert (error.code, error.param) == ("unsupported_field", "priority")


# --- constraints


@pytest.mark.parametrize("own", [{"bad_words": ("teal",)}, {"min_tokens": 20}])
async def test_what_contradicts_the_constraint_is_named(engine: Engine, own: dict[str, Any]) -> None:
    constraint = Grammar("choice", json.dumps(["teal"]), param="guided_choice")
    error = await refusal(engine, work(user("hi"), sampling=own, grammar=constraint))
    assert (error.code, error.param) == ("invalid_request", *own)


async def test_what_leaves_no_allowed_token_is_named(engine: Engine, reference: tuple[Any, Any]) -> None:
    (yes,) = reference[0](" yes", add_special_tokens=False).input_ids
    error = await refusal(engine, work(STORY, sampling={"allowed_token_ids": (yes,), "bad_words": ("yes",)}))
    assert (error.code, error.param) == ("invalid_request", "allowed_token_ids")


async def test_guided_choice(engine: Engine) -> None:
    assert await constrained(engine, "choice", json.dumps(["crimson", "teal"])) in ("crimson", "teal")


async def test_guided_grammar(engine: Engine) -> None:
    assert await constrained(engine, "ebnf", 'start: "red" | "green"') in ("red", "green")


async def test_guided_whitespace_pattern(engine: Engine) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    schema["additionalProperties"] = False
    plain = await constrained(engine, "json_schema", json.dumps(schema))
    spaced = await constrained(
        engine, "json_schema", json.dumps({**schema, "x-guidance": {"whitespace_pattern": r"\n\n"}})
    )
    assert json.loads(plain).keys() == json.loads(spaced).keys() == {"a"}
    assert "\n\n" not in plain
    assert "\n\n" in spaced


FLAG: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]}
FLAG["additionalProperties"] = False


async def test_structural_tag_takes_over_where_the_model_says_the_trigger(engine: Engine) -> None:
    free = (await answer(engine, work(CAPITAL))).text
    begin = free.split()[0]
    tag = {"triggers": [begin], "structures": [{"begin": begin, "schema": FLAG, "end": "!"}]}
    item = work(CAPITAL, sampling={"max_tokens": 40}, grammar=Grammar("structural_tag", json.dumps(tag)))
    text = (await answer(engine, item)).text
    assert "{" not in free
    assert text.startswith((f'{begin}{{"n":true}}!', f'{begin}{{"n":false}}!'))


async def test_structural_tag_of_the_new_form_is_followed(engine: Engine) -> None:
    choice = {"type": "or", "elements": [{"type": "const_string", "value": one} for one in ("Lyon", "Paris")]}
    thought = {"type": "tag", "begin": "<t>", "content": {"type": "any_text"}, "end": [".", "!", " the"]}
    verdict = {"type": "tag", "begin": "<v>", "content": {"type": "json_schema", "json_schema": FLAG}, "end": "</v>"}
    tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": [thought, choice, verdict]}}
    text = await constrained(engine, "structural_tag", json.dumps(tag), max_tokens=200)
    assert re.fullmatch(r'<t>[^.!]*(\.|!| the)(Lyon|Paris)<v>\{"n":(true|false)\}</v>', text), text


@pytest.mark.parametrize(
    "value",
    ["{}", "[]", "not json", '{"triggers": [], "structures": []}', '{"format": {"type": "spell"}}', "[" * 100_000],
)
async def test_malformed_structural_tags_are_refused(engine: Engine, value: str) -> None:
    error = await refusal(engine, work(user("hi"), grammar=Grammar("structural_tag", value, param="structural_tag")))
    assert (error.code, error.param) == ("invalid_request", "structural_tag")

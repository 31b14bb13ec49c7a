"""The table of sampling: what each parameter of a work item is to vLLM. No model needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from engines.adapters.base import WorkError
from engines.adapters.vllm.sampling import parameters, room_for_output
from engines.protocol.catalog import Generation, Profile
from engines.protocol.work import GenerateWork, Sampling
from tests.engines.generation.helpers import entry

WORDS = {"<end>": 7}
VOCABULARY: Any = SimpleNamespace(size=1000, index=WORDS.get)

ROWS: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "max_tokens": [({"max_tokens": 5}, {"max_tokens": 5})],
    "min_tokens": [({"min_tokens": 3}, {"min_tokens": 3}), ({"min_tokens": 24}, {"min_tokens": 24})],
    "temperature": [({"temperature": 0.3}, {"temperature": 0.3}), ({"temperature": 0.0}, {"temperature": 0.0})],
    "top_p": [({"top_p": 0.4}, {"top_p": 0.4})],
    "top_k": [({"top_k": 9}, {"top_k": 9})],
    "min_p": [({"min_p": 0.1}, {"min_p": 0.1})],
    "frequency_penalty": [({"frequency_penalty": -2.0}, {"frequency_penalty": -2.0})],
    "presence_penalty": [({"presence_penalty": 2.0}, {"presence_penalty": 2.0})],
    "repetition_penalty": [({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3})],
    "seed": [({"seed": 5}, {"seed": 5}), *(({"seed": seed}, {"seed": seed % 2**62}) for seed in (-1, -5, -(2**63)))],
    "stop": [({"stop": ("a", "b")}, {"stop": ["a", "b"]})],
    "stop_token_ids": [({"stop_token_ids": (3,)}, {"stop_token_ids": [3]})],
    # a text of one token ends the generation before it is text; any other is a stop string
    "stop_tokens": [({"stop_tokens": ("<end>", "xy")}, {"stop_token_ids": [7], "stop": ["xy"]})],
    "logit_bias": [({"logit_bias": {4: -100.0}}, {"logit_bias": {4: -100.0}})],
    "logprobs": [({"logprobs": 0}, {"logprobs": 0}), ({"logprobs": 5}, {"logprobs": 5}), ({}, {"logprobs": None})],
    "n": [
        ({"n": 3}, {"n": 3, "temperature": 1.0}),
        # several greedy candidates, which vLLM refuses
        ({"n": 3, "temperature": 0.0}, {"n": 3, "temperature": 1.0, "top_k": 1}),
    ],
    "best_of": [({"best_of": 4, "n": 2}, {"n": 4, "logprobs": 0}), ({"best_of": 4, "logprobs": 2}, {"logprobs": 2})],
    "include_stop_str_in_output": [({"include_stop_str_in_output": True}, {"include_stop_str_in_output": True})],
    "ignore_eos": [({"ignore_eos": True}, {"ignore_eos": True})],
    "skip_special_tokens": [({"skip_special_tokens": False}, {"skip_special_tokens": False})],
    "spaces_between_special_tokens": [
        ({"spaces_between_special_tokens": False}, {"spaces_between_special_tokens": False})
    ],
    "prompt_logprobs": [({"prompt_logprobs": 2}, {"prompt_logprobs": 2})],
    "allowed_token_ids": [({"allowed_token_ids": (5, 3, 5)}, {"allowed_token_ids": [3, 5]})],
    "bad_words": [({"bad_words": ("x",)}, {"bad_words": ["x"]})],
}
ELSEWHERE = {
    # test_an_explicit_limit_that_does_not_fit_is_refused_and_a_default_is_clamped
    "max_tokens_is_default",
    # test_tokens_are_named_by_their_ids
    "tokens_as_ids",
    # test_beams_find_likelier_text_than_greed and those after it
    "beam_width",
    "length_penalty",
}
"""Parameters whose effect is not in vLLM's ``SamplingParams``, and the tests that show it on the engine."""


def profile(**default_sampling: Any) -> Profile:
    return Profile(
        name="default",
        engine="vllm",
        adapter_path="a:b",
        source="s",
        runtime={"default_sampling": default_sampling, "stop_tokens": []},
    )


def made(stream: bool = False, default_sampling: dict[str, Any] | None = None, **sampling: Any) -> Any:
    given = Sampling(**{"max_tokens": 24, **sampling})
    work = GenerateWork(request_id="r", model="m", prompt="x", stream=stream, sampling=given)
    return parameters(work, profile(**(default_sampling or {})), given.max_tokens, VOCABULARY)


@pytest.mark.parametrize(
    ("given", "expected"), [row for rows in ROWS.values() for row in rows], ids=lambda value: repr(value)[:60]
)
def test_row(given: dict[str, Any], expected: dict[str, Any]) -> None:
    params = made(**given)
    assert {name: getattr(params, name) for name in expected} == expected


def test_a_minimum_that_does_not_fit_is_refused() -> None:
    with pytest.raises(WorkError, match=r"99.* 24 ") as refused:
        made(min_tokens=99)
    assert refused.value.param == "min_tokens"
    assert made(default_sampling={"min_new_tokens": 99}).min_tokens == 24, "the model's own gives way"


def test_each_parameter_has_a_row() -> None:
    assert set(Sampling.__struct_fields__) == set(ROWS) | ELSEWHERE
    assert all(name in given for name, rows in ROWS.items() for given, _ in rows[:1])


@pytest.mark.parametrize("name", ["logit_bias", "stop_token_ids", "allowed_token_ids"])
def test_a_token_outside_the_vocabulary_is_refused_by_name(name: str) -> None:
    with pytest.raises(WorkError) as refused:
        made(**{name: {1000: 1.0} if name == "logit_bias" else (1000,)})
    assert (refused.value.code, refused.value.param) == ("invalid_request", name)


def test_the_requests_own_values_win_over_those_of_the_profile() -> None:
    default = {"temperature": 0.2, "top_p": 0.5, "top_k": 3, "min_new_tokens": 4, "presence_penalty": 1.0}
    params = made(default_sampling=default)
    assert (params.temperature, params.top_p, params.top_k, params.min_tokens, params.presence_penalty) == (
        *(0.2, 0.5, 3, 4),
        1.0,
    )
    params = made(default_sampling=default, temperature=0.9, top_k=8, min_tokens=0)
    assert (params.temperature, params.top_p, params.top_k, params.min_tokens) == (0.9, 0.5, 8, 0)


def test_a_stream_gets_deltas_and_a_whole_answer_one_output() -> None:
    assert made(stream=True).output_kind == RequestOutputKind.DELTA
    assert made().output_kind == RequestOutputKind.FINAL_ONLY
    assert made(stream=True, n=2, best_of=4).n == 2  # a stream cannot be ranked


def test_a_default_limit_is_within_what_the_model_may_say() -> None:
    asked = Sampling(max_tokens=500, max_tokens_is_default=True)
    short = entry(generation=Generation(context_length=2048, max_output_tokens=100))
    assert room_for_output(asked, short, 10, 2048) == 100
    assert room_for_output(asked, short, 2000, 2048) == 48


@pytest.mark.parametrize(("limit", "tokens", "field"), [(500, 1700, "max_tokens"), (1, 2048, "prompt")])
def test_what_does_not_fit_the_context_is_refused_by_name(limit: int, tokens: int, field: str) -> None:
    with pytest.raises(WorkError) as refused:
        room_for_output(Sampling(max_tokens=limit), entry(), tokens, 2048, prompt="prompt")
    assert (refused.value.code, refused.value.param) == ("context_exceeded", field)


def test_an_answer_that_a_grammar_holds_must_end() -> None:
    work = GenerateWork(request_id="r", model="m", prompt="x", sampling=Sampling(max_tokens=24, ignore_eos=True))
    held = StructuredOutputsParams(choice=["red", "green"])
    with pytest.raises(WorkError) as refused:
        parameters(work, profile(), 24, VOCABULARY, constraint=held)
    assert (refused.value.code, refused.value.param) == ("unsupported_field", "ignore_eos")


def test_nothing_but_its_grammar_ends_a_forced_call() -> None:
    given = Sampling(max_tokens=24, stop=("a",), stop_token_ids=(3,), stop_tokens=("no token",))
    work = GenerateWork(request_id="r", model="m", prompt="x", sampling=given)
    params = parameters(work, profile(), 24, VOCABULARY, forced_call=True)
    assert (params.stop, params.stop_token_ids) == ([], [])
    params = parameters(work, profile(), 24, VOCABULARY)
    assert (params.stop, params.stop_token_ids) == (["a", "no token"], [3])

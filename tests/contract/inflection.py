"""The second contract's rules across fields, obeyed: each well-formed random body made into one that can be answered.

No field is left out. In turn, every field gets a value that is known to be good; what contradicts it makes way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

from tests.contract import obedience
from tests.live import CHAT_MODEL

Body = dict[str, Any]

FLAG: Final = {"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]}
TOOL: Final = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
TAG: Final = '{"format": {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}}'
GOOD: Final[dict[str, Body]] = {
    "add_generation_prompt": {"add_generation_prompt": False},
    "add_special_tokens": {"add_special_tokens": True},
    "allowed_token_ids": {"allowed_token_ids": [5, 600]},
    "bad_words": {"bad_words": ["Paris"]},
    "best_of": {"best_of": 2, "n": 1, "stream": False, "temperature": 1},
    "cache_salt": {"cache_salt": "salt"},
    "chat_template": {"chat_template": "{{ messages[0].role }}"},
    "chat_template_kwargs": {"chat_template_kwargs": {"tone": "dry"}},
    "continue_final_message": {"continue_final_message": True},
    "documents": {"documents": [{"title": "t", "text": "x"}]},
    "echo": {"echo": True},
    "frequency_penalty": {"frequency_penalty": 2},
    "guided_choice": {"guided_choice": ["yes", "no"]},
    "guided_decoding_backend": {"guided_decoding_backend": "llguidance"},
    "guided_grammar": {"guided_grammar": 'start: "a" | "b"'},
    "guided_json": {"guided_json": FLAG},
    "guided_meta": {"guided_meta": {}},
    "guided_regex": {"guided_regex": "[a-c]{2}"},
    "guided_whitespace_pattern": {"guided_whitespace_pattern": " ?", "guided_json": FLAG},
    "ignore_eos": {"ignore_eos": True},
    "include_stop_str_in_output": {"include_stop_str_in_output": True},
    "kv_transfer_params": {"kv_transfer_params": {}},
    "length_penalty": {"length_penalty": -0.5, "use_beam_search": True},
    "logit_bias": {"logit_bias": {"7": -100}},
    "logprobs": {"logprobs": True},
    "max_completion_tokens": {"max_completion_tokens": 2},
    "max_tokens": {"max_tokens": 2},
    "messages": {},
    "min_p": {"min_p": 0.5},
    "min_tokens": {"min_tokens": 2},
    "mm_processor_kwargs": {"mm_processor_kwargs": {}},
    "model": {"model": CHAT_MODEL},
    "n": {"n": 2},
    "parallel_tool_calls": {"tools": [TOOL], "parallel_tool_calls": False},
    "presence_penalty": {"presence_penalty": -2},
    "priority": {"priority": 0},
    "prompt_logprobs": {"prompt_logprobs": 2, "stream": False},
    "repetition_penalty": {"repetition_penalty": 1.5},
    "request_id": {"request_id": "mine"},
    "response_format": {"response_format": {"type": "json_object"}},
    "return_tokens_as_token_ids": {"return_tokens_as_token_ids": True, "logprobs": True},
    "seed": {"seed": -1},
    "skip_special_tokens": {"skip_special_tokens": False},
    "spaces_between_special_tokens": {"spaces_between_special_tokens": False},
    "stop": {"stop": ["e"]},
    "stop_token_ids": {"stop_token_ids": [5]},
    "stream": {"stream": True},
    "stream_options": {"stream": True, "stream_options": {"include_usage": True}},
    "structural_tag": {"structural_tag": TAG},
    "temperature": {"temperature": 2},
    "timeout_sec": {"timeout_sec": 100},
    "tool_choice": {"tools": [TOOL], "tool_choice": "required"},
    "tools": {"tools": [TOOL]},
    "top_k": {"top_k": 3},
    "top_logprobs": {"top_logprobs": 2, "logprobs": True},
    "top_p": {"top_p": 0.5},
    "truncate_prompt_tokens": {"truncate_prompt_tokens": 7},
    "use_beam_search": {"use_beam_search": True},
    "user": {"user": "somebody"},
    "vllm_xargs": {"vllm_xargs": {}},
}
"""For each field, members that can be answered together."""

CONSTRAINTS: Final = (
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structural_tag",
    "response_format",
    "allowed_token_ids",
)
NOT_SEARCHED: Final = (
    *CONSTRAINTS,
    "bad_words",
    "frequency_penalty",
    "guided_whitespace_pattern",
    "logit_bias",
    "min_p",
    "min_tokens",
    "presence_penalty",
    "prompt_logprobs",
    "repetition_penalty",
    "spaces_between_special_tokens",
    "stop",
    "stop_token_ids",
    "temperature",
    "tool_choice",
    "top_k",
    "top_p",
)
EMPTY: Final = ("guided_meta", "kv_transfer_params", "mm_processor_kwargs", "vllm_xargs")
ENFORCEABLE: Final = (*CONSTRAINTS[:5], "guided_decoding_backend", "guided_whitespace_pattern")


class Obedience:
    """Obeys for one body after another."""

    def __init__(self) -> None:
        self._turns: Iterator[str] = itertools.cycle(GOOD)

    def __call__(self, body: Body) -> None:
        """Make ``body`` answerable, with the field whose turn it is."""
        good = GOOD[next(self._turns)]
        body |= good
        body["model"] = CHAT_MODEL
        _conversation(body)
        _within_range(body)
        _one_constraint(body, good)
        _stop_or_call(body, good)
        _search_or_sampling(body, good)
        if body.get("stream") and body.get("prompt_logprobs") is not None:
            del body["prompt_logprobs" if "stream" in good else "stream"]


def _conversation(body: Body) -> None:
    kept = {name: body[name] for name in ("chat_template_kwargs", "logit_bias", "min_tokens") if name in body}
    obedience.chat(body)
    body |= kept
    if body.get("continue_final_message"):
        body["messages"].append({"role": "assistant", "content": "It is"})
        body["add_generation_prompt"] = False
    if not set("{%#").isdisjoint(body.get("chat_template") or "") and body["chat_template"] != "{{ messages[0].role }}":
        body["chat_template"] = obedience.TEXT


def _within_range(body: Body) -> None:
    """Values that the model or the operator judges."""
    for name in ("allowed_token_ids", "stop_token_ids"):
        if body.get(name):
            body[name] = [token % 1000 for token in body[name]]
    if body.get("logit_bias"):
        body["logit_bias"] = {str(int(token) % 1000): bias for token, bias in body["logit_bias"].items()}
    for name in EMPTY:
        if name in body:
            body[name] = {}
    for name in ENFORCEABLE:
        if body.get(name) is not None:
            body[name] = GOOD[name][name]
    if body.get("min_tokens"):
        body["min_tokens"] = 1
    if body.get("priority"):
        body["priority"] = 0
    if body.get("timeout_sec"):
        body["timeout_sec"] = max(60, body["timeout_sec"])
    if body.get("truncate_prompt_tokens") == 0:
        body["truncate_prompt_tokens"] = -1


def _one_constraint(body: Body, good: Body) -> None:
    asked = [name for name in CONSTRAINTS if body.get(name) is not None]
    if (body.get("response_format") or {}).get("type") == "text":
        asked.remove("response_format")
    if body.get("tool_choice") not in (None, "auto", "none"):
        asked.append("tool_choice")
    kept = next((name for name in asked if name in good), asked[0] if asked else None)
    for name in asked:
        if name != kept:
            del body[name]
    if kept not in ("guided_json", "response_format"):
        body.pop("guided_whitespace_pattern", None)


def _stop_or_call(body: Body, good: Body) -> None:
    """Nothing stops a forced call."""
    stops = [name for name in ("stop", "stop_token_ids") if body.get(name)]
    if body.get("tool_choice") in (None, "auto", "none") or not stops:
        return
    for name in ["tool_choice"] if set(stops) & good.keys() else stops:
        del body[name]


def _search_or_sampling(body: Body, good: Body) -> None:
    if body.get("use_beam_search") and ("use_beam_search" in good or good.keys().isdisjoint(NOT_SEARCHED)):
        for name in NOT_SEARCHED:
            body.pop(name, None)
    else:
        body.pop("use_beam_search", None)
        body.pop("length_penalty", None)

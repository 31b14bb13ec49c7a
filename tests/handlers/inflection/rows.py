"""One row, or several, for each field of the second contract: what is sent, and what reaches the work item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.handlers.scripted import ABSENT

USER: Final = {"role": "user", "content": "hi"}
ANSWERED: Final = {"role": "assistant", "content": "It is"}
TOOL: Final = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
STRICT: Final = {"type": "function", "function": {**TOOL["function"], "strict": True}}  # type: ignore[dict-item]  # a dict
SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}}
TAG: Final = '{"triggers": ["<x>"], "structures": []}'
BEAMS: Final = {"use_beam_search": True}


@dataclass(frozen=True)
class Row:
    """``body`` is sent over the least request; ``reaches`` are members of the work item by path, or ``param`` is the
    field that is refused, with the status and the type of the fault."""

    body: Mapping[str, Any]
    reaches: Mapping[str, Any] = field(default_factory=dict)
    param: str | None = None
    type: str = "invalid_request"
    status: int = 200

    @property
    def id(self) -> str:
        told = {name: value for name, value in self.body.items() if name != "messages" or len(self.body) == 1}
        return str(told)[:80]


def takes(body: Mapping[str, Any], reaches: Mapping[str, Any]) -> Row:
    return Row(body, reaches)


def refuses(body: Mapping[str, Any], param: str, type: str = "invalid_request", status: int = 422) -> Row:
    return Row(body, {}, param, type, status)


def unsupported(body: Mapping[str, Any], param: str) -> Row:
    return refuses(body, param, "unsupported_field")


def number(name: str, path: str, good: Any, *bad: Any) -> list[Row]:
    return [takes({name: good}, {path: good}), *(refuses({name: value}, name) for value in (*bad, "1", [], {}))]


def grammar(name: str, value: Any, kind: str, text: str) -> Row:
    return takes({name: value}, {"grammar.kind": kind, "grammar.value": text, "grammar.param": name})


SHARED: Final = [
    takes({"model": "org/chat:warm"}, {"model": "org/chat", "profile": "warm"}),
    takes({"model": None}, {"model": "org/chat"}),
    refuses({"model": ""}, "model"),
    takes({"messages": [{"role": "developer", "content": "be brief"}, USER]}, {"messages.0.role": "system"}),
    refuses({"messages": []}, "messages"),
    refuses({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
    unsupported({"messages": [{"role": "user"}]}, "messages[0].content"),
    *number("frequency_penalty", "sampling.frequency_penalty", 0.5, 2.1),
    *number("presence_penalty", "sampling.presence_penalty", -0.5, -2.1),
    takes({"logit_bias": {"7": 1.5}}, {"sampling.logit_bias": {7: 1.5}}),
    refuses({"logit_bias": {"seven": 1}}, "logit_bias"),
    takes({"logprobs": True, "top_logprobs": 3}, {"sampling.logprobs": 3}),
    refuses({"logprobs": 1}, "logprobs"),
    refuses({"top_logprobs": 3}, "top_logprobs"),
    *number("max_tokens", "sampling.max_tokens", 5, 0, -1),
    *number("max_completion_tokens", "sampling.max_tokens", 5, 0, -1),
    *number("n", "sampling.n", 3, 0, 129),
    takes({"best_of": 4, "n": 2}, {"sampling.best_of": 4, "sampling.n": 2}),
    refuses({"best_of": 1, "n": 2}, "best_of"),
    *number("seed", "sampling.seed", 7),
    takes({"stop": ["END"]}, {"sampling.stop": ["END"]}),
    refuses({"stop": ""}, "stop"),
    takes({"stream": True}, {"stream": True}),
    refuses({"stream": "yes"}, "stream"),
    takes({"stream": True, "stream_options": {"include_usage": True}}, {"stream": True}),
    unsupported({"stream_options": {"more": 1}}, "stream_options.more"),
    *number("temperature", "sampling.temperature", 0.5, -1, 2.1),
    *number("top_p", "sampling.top_p", 0.5, 0, 1.1),
    *number("top_k", "sampling.top_k", 5, -2),
    takes({"top_k": -1}, {"sampling.top_k": ABSENT}),
    takes({"top_k": 0}, {"sampling.top_k": ABSENT}),
    *number("repetition_penalty", "sampling.repetition_penalty", 1.5, 0, 2.1),
    takes({"min_tokens": 3}, {"sampling.min_tokens": 3}),
    refuses({"min_tokens": -1}, "min_tokens"),
    refuses({"min_tokens": None}, "min_tokens"),
    takes({"tools": [TOOL], "tool_choice": "required"}, {"tool_choice": "required", "tools.0.function.name": "look"}),
    refuses({"tools": []}, "tools"),
    refuses({"tool_choice": "auto"}, "tool_choice"),
    unsupported({"tools": [TOOL], "tool_choice": "required", "stop": ["x"]}, "stop"),
    unsupported({"tools": [TOOL], "tool_choice": "required", "stop_token_ids": [3]}, "stop_token_ids"),
    takes({"tools": [TOOL], "tool_choice": "auto", "stop": ["x"]}, {"sampling.stop": ["x"]}),
    takes({"tools": [TOOL], "tool_choice": "required", "stop": []}, {"sampling.stop": ABSENT}),
    takes({"tools": [TOOL], "parallel_tool_calls": False}, {"parallel_tool_calls": False}),
    refuses({"parallel_tool_calls": 0}, "parallel_tool_calls"),
    takes({"response_format": {"type": "json_object"}}, {"grammar.kind": "json_object"}),
    refuses({"response_format": {"type": "poem"}}, "response_format.type"),
    takes({"user": "someone"}, {"user": ABSENT}),
    refuses({"user": 1}, "user"),
]

SAMPLING: Final = [
    *number("min_p", "sampling.min_p", 0.25, -0.1, 1.1),
    takes({"stop_token_ids": [2, 7]}, {"sampling.stop_token_ids": [2, 7]}),
    refuses({"stop_token_ids": [-1]}, "stop_token_ids"),
    takes({"include_stop_str_in_output": True}, {"sampling.include_stop_str_in_output": True}),
    refuses({"include_stop_str_in_output": None}, "include_stop_str_in_output"),
    takes({"ignore_eos": True}, {"sampling.ignore_eos": True}),
    refuses({"ignore_eos": "true"}, "ignore_eos"),
    *(
        unsupported({**held, "ignore_eos": True}, "ignore_eos")
        for held in (
            {"guided_json": {}},
            {"guided_regex": "a"},
            {"guided_choice": ["red", "green"]},
            {"guided_grammar": "a"},
            {"structural_tag": TAG},
            {"response_format": {"type": "json_object"}},
            {"tools": [TOOL], "tool_choice": "required"},
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}},
            {"tools": [TOOL, STRICT]},
        )
    ),
    takes({"guided_choice": ["red"], "ignore_eos": False}, {"grammar.kind": "choice"}),
    takes({"response_format": {"type": "text"}, "ignore_eos": True}, {"sampling.ignore_eos": True}),
    takes({"tools": [TOOL], "ignore_eos": True}, {"sampling.ignore_eos": True}),
    takes({"tools": [STRICT], "tool_choice": "none", "ignore_eos": True}, {"sampling.ignore_eos": True}),
    takes({"skip_special_tokens": False}, {"sampling.skip_special_tokens": False}),
    refuses({"skip_special_tokens": 0}, "skip_special_tokens"),
    takes({"spaces_between_special_tokens": False}, {"sampling.spaces_between_special_tokens": False}),
    refuses({"spaces_between_special_tokens": 0}, "spaces_between_special_tokens"),
    *number("prompt_logprobs", "sampling.prompt_logprobs", 2, -1, 21),
    takes({"prompt_logprobs": 0}, {"sampling.prompt_logprobs": 0}),
    unsupported({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    takes({"allowed_token_ids": [5, 6]}, {"sampling.allowed_token_ids": [5, 6]}),
    refuses({"allowed_token_ids": []}, "allowed_token_ids"),
    takes({"bad_words": ["bad"]}, {"sampling.bad_words": ["bad"]}),
    refuses({"bad_words": [""]}, "bad_words[...]"),
    refuses({"bad_words": ["bad", " \n"]}, "bad_words[1]"),
    takes({"logprobs": True, "return_tokens_as_token_ids": True}, {"sampling.tokens_as_ids": True}),
    refuses({"return_tokens_as_token_ids": 1}, "return_tokens_as_token_ids"),
]

SEARCH: Final = [
    takes(BEAMS, {"sampling.beam_width": 1}),
    takes({**BEAMS, "n": 3}, {"sampling.beam_width": 3, "sampling.n": 3}),
    takes({**BEAMS, "n": 2, "best_of": 5}, {"sampling.beam_width": 5, "sampling.best_of": ABSENT}),
    takes({**BEAMS, "temperature": 0, "seed": 1, "user": "x"}, {"sampling.beam_width": 1}),
    takes({"use_beam_search": False}, {"sampling.beam_width": ABSENT}),
    refuses({"use_beam_search": None}, "use_beam_search"),
    refuses({**BEAMS, "n": 11}, "n"),
    refuses({**BEAMS, "best_of": 11}, "best_of"),
    takes({**BEAMS, "length_penalty": 0.5}, {"sampling.length_penalty": 0.5}),
    takes({**BEAMS, "length_penalty": 0}, {"sampling.length_penalty": 0.0}),
    refuses({**BEAMS, "length_penalty": 10.5}, "length_penalty"),
    refuses({**BEAMS, "length_penalty": -1e300}, "length_penalty"),
    refuses({"length_penalty": 0.5}, "length_penalty"),
    refuses({"length_penalty": 0}, "length_penalty"),
    takes({"length_penalty": 1}, {"sampling.length_penalty": ABSENT}),
    *(
        unsupported({**BEAMS, name: value}, name)
        for name, value in {
            "temperature": 0.5,
            "top_p": 0.5,
            "top_k": 5,
            "min_p": 0.5,
            "frequency_penalty": 1,
            "presence_penalty": 1,
            "repetition_penalty": 1.5,
            "min_tokens": 1,
            "logit_bias": {"1": 1},
            "stop": "x",
            "stop_token_ids": [1],
            "bad_words": ["x"],
            "allowed_token_ids": [1],
            "prompt_logprobs": 0,
            "spaces_between_special_tokens": False,
            "priority": 1,
            "guided_json": {},
            "guided_regex": "a",
            "guided_choice": ["a"],
            "guided_grammar": "a",
            "structural_tag": "a",
            "response_format": {"type": "json_object"},
        }.items()
    ),
    unsupported({**BEAMS, "tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
    unsupported({**BEAMS, "tools": [TOOL, STRICT]}, "tools[1].function.strict"),
    takes({**BEAMS, "tools": [STRICT], "tool_choice": "none"}, {"sampling.beam_width": 1}),
]

PROMPT: Final = [
    takes({"echo": False}, {"messages.0.content": "hi"}),
    refuses({"echo": None}, "echo"),
    takes({"add_generation_prompt": False}, {"rendering.add_generation_prompt": False}),
    refuses({"add_generation_prompt": "no"}, "add_generation_prompt"),
    takes(
        {"messages": [USER, ANSWERED], "continue_final_message": True},
        {"rendering.continue_final_message": True, "rendering.add_generation_prompt": False},
    ),
    refuses({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    takes({"add_special_tokens": True}, {"rendering.add_special_tokens": True}),
    refuses({"add_special_tokens": 1}, "add_special_tokens"),
    *number("truncate_prompt_tokens", "rendering.truncate_prompt_tokens", 9, 0, -2),
    takes({"truncate_prompt_tokens": -1}, {"rendering.truncate_prompt_tokens": -1}),
    takes({"documents": [{"title": "t", "text": "x"}]}, {"rendering.documents.0.title": "t"}),
    refuses({"documents": ["x"]}, "documents[...]"),
    takes({"chat_template": "{{ messages }}"}, {"rendering.chat_template": "{{ messages }}"}),
    refuses({"chat_template": ""}, "chat_template"),
    refuses({"chat_template": "x" * 70_000}, "chat_template"),
    takes({"chat_template_kwargs": {"tone": "dry"}}, {"chat_template_kwargs.tone": "dry"}),
    takes({"chat_template_kwargs": {"guardian_config": 1}}, {"chat_template_kwargs.guardian_config.risk_name": "harm"}),
    unsupported({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs.tokenize"),
    unsupported({"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs.self"),
    takes({"mm_processor_kwargs": {"num_crops": 4}}, {"rendering.mm_processor_kwargs": {"num_crops": 4}}),
    unsupported({"mm_processor_kwargs": {"num_crops": 4}, "model": "org/plain"}, "mm_processor_kwargs"),
    unsupported({"mm_processor_kwargs": {"num_crops": 4, "size": {"height": 10**6}}}, "mm_processor_kwargs"),
    takes({"cache_salt": "salt"}, {"rendering.cache_salt": "salt"}),
    refuses({"cache_salt": ""}, "cache_salt"),
]

GUIDED: Final = [
    grammar("guided_json", SCHEMA, "json_schema", '{"type":"object","properties":{"a":{"type":"integer"}}}'),
    grammar("guided_json", '{"type": "object"}', "json_schema", '{"type":"object"}'),
    refuses({"guided_json": "{"}, "guided_json"),
    refuses({"guided_json": {"type": "array", "minItems": 10**9}}, "guided_json"),
    refuses({"guided_json": {"anyOf": [{"type": "array", "maxItems": 9000}] * 2}}, "guided_json"),
    takes({"guided_json": {"type": "array", "maxItems": 9000}}, {"grammar.kind": "json_schema"}),
    grammar("guided_regex", "a+", "regex", "a+"),
    refuses({"guided_regex": ""}, "guided_regex"),
    grammar("guided_choice", ["a", "b"], "choice", '["a","b"]'),
    refuses({"guided_choice": []}, "guided_choice"),
    grammar("guided_grammar", 'start: "a"', "ebnf", 'start: "a"'),
    refuses({"guided_grammar": 1}, "guided_grammar"),
    grammar("structural_tag", TAG, "structural_tag", TAG),
    refuses({"structural_tag": {}}, "structural_tag"),
    refuses({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    refuses({"guided_regex": "a", "response_format": {"type": "json_object"}}, "response_format"),
    refuses({"guided_regex": "a", "tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
    refuses({"guided_regex": "a", "allowed_token_ids": [1]}, "allowed_token_ids"),
    unsupported({"guided_regex": "a", "model": "org/plain"}, "guided_regex"),
    takes({"guided_regex": "a", "guided_decoding_backend": "llguidance"}, {"grammar.kind": "regex"}),
    takes({"guided_decoding_backend": "auto"}, {"grammar": ABSENT}),
    unsupported({"guided_regex": "a", "guided_decoding_backend": "outlines"}, "guided_decoding_backend"),
    unsupported({"guided_decoding_backend": "lm-format-enforcer"}, "guided_decoding_backend"),
    takes(
        {"guided_json": {"type": "object"}, "guided_whitespace_pattern": " "},
        {
            "grammar.value": '{"type":"object","x-guidance":{"whitespace_pattern":" "}}',
            "grammar.param": "guided_json",
        },
    ),
    takes(
        {"response_format": {"type": "json_object"}, "guided_whitespace_pattern": " "},
        {"grammar.value": '{"type":"object","x-guidance":{"whitespace_pattern":" "}}'},
    ),
    refuses({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
    takes({"guided_meta": {}}, {"grammar": ABSENT}),
    unsupported({"guided_meta": {"a": 1}}, "guided_meta"),
]

SERVING: Final = [
    takes({"priority": -3}, {"priority": -3}),
    refuses({"priority": 1.5}, "priority"),
    refuses({"request_id": "no spaces"}, "request_id"),
    takes({"kv_transfer_params": None}, {}),
    unsupported({"kv_transfer_params": {"do_remote_decode": True}}, "kv_transfer_params"),
    takes({"vllm_xargs": {}}, {}),
    unsupported({"vllm_xargs": {"a": 1}}, "vllm_xargs"),
    refuses({"timeout_sec": 0}, "timeout_sec"),
    unsupported({"logits_processors": []}, "logits_processors"),
    refuses({"model": "nobody"}, "model", "model_not_found", 404),
]

ROWS: Final = [*SHARED, *SAMPLING, *SEARCH, *PROMPT, *GUIDED, *SERVING]

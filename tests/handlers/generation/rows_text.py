"""Rows of completions, responses and native generate."""

from __future__ import annotations

import base64
from typing import Any

from tests.handlers.scripted import ABSENT, DELETE

from .table import UNSUPPORTED, Row, Rows

PIXELS = base64.b64encode(b"\x89PNG pixels").decode()


def completions() -> list[Row]:
    rows = Rows("/v1/completions")
    rows.takes("a prompt", {}, {"prompt": "hi", "messages": ABSENT})
    rows.takes("an empty prompt", {"prompt": ""}, {"prompt": ""})
    rows.takes("an array of one prompt", {"prompt": ["hi"]}, {"prompt": "hi"})
    rows.refuses("prompt absent", {"prompt": DELETE}, "prompt")
    for value in (None, 1, {}, True):
        rows.refuses(f"prompt {value!r}", {"prompt": value}, "prompt")
    for value in ([], ["a", "b"], [1, 2], [[1]], [None]):
        rows.refuses(f"prompt {value!r}", {"prompt": value}, "prompt", UNSUPPORTED)
    rows.takes("no limit", {}, {"sampling.max_tokens": 16, "sampling.max_tokens_is_default": True})
    rows.takes("max_tokens null is the default", {"max_tokens": None}, {"sampling.max_tokens": 16})
    rows.number("max_tokens", "sampling.max_tokens", [1, 4096], [0, -1, 3_000_000_000, 1e18], whole=True)
    rows.refuses("max_tokens over the model's own limit", {"max_tokens": 4097}, "max_tokens")
    rows.samplers()
    rows.seed()
    rows.stops()
    rows.streams()
    for value in (None, 1, 1.0):
        rows.takes(f"n {value}", {"n": value}, {"sampling.n": ABSENT})
    for value in (0, -1, 1.5, "1", True):
        rows.refuses(f"n {value!r}", {"n": value}, "n")
    rows.refuses("n 2", {"n": 2}, "n", UNSUPPORTED)
    rows.unknown("echo", "suffix", "logprobs", "best_of", "stream_options", "user", "logit_bias", "top_k")
    rows.refuses("a model that does not stream", {"model": "org/plain", "stream": True}, "stream", UNSUPPORTED)
    rows.models()
    rows.bodies()
    return rows.rows


def responses() -> list[Row]:
    rows = Rows("/v1/responses")
    rows.takes("text", {}, {"prompt": "hi", "messages": ABSENT, "stream": ABSENT})
    turn = {"role": "user", "content": "hi"}
    rows.takes("a message", {"input": [turn]}, {"prompt": ABSENT, "messages": [turn]})
    rows.takes("a wrapped message", {"input": [{"type": "message", **turn}]}, {"messages": [turn]})
    for role, becomes in {"system": "system", "assistant": "assistant", "developer": "system"}.items():
        rows.takes(f"role {role}", {"input": [{**turn, "role": role}]}, {"messages.0.role": becomes})
    for kind in ("text", "input_text", "output_text"):
        parts = [{"type": kind, "text": "a"}, {"type": "text", "text": "b"}]
        rows.takes(f"parts of type {kind}", {"input": [{**turn, "content": parts}]}, {"messages.0.content": "ab"})
    rows.takes("no parts", {"input": [{**turn, "content": []}]}, {"messages.0.content": ""})
    rows.refuses("input absent", {"input": DELETE}, "input")
    for value in (None, 1, {}, []):
        rows.refuses(f"input {value!r}", {"input": value}, "input")
    rows.refuses("a message that is text", {"input": ["hi"]}, "input[0]")
    for value in ("tool", "boss", 1):
        rows.refuses(f"role {value!r}", {"input": [{**turn, "role": value}]}, "input[0].role")
    rows.takes("a message of an odd type", {"input": [{"type": "zzz", **turn}]}, {"messages": [turn]})
    for item in ({"type": "zzz"}, {"type": "function_call_output", "call_id": "c", "output": "x"}):
        rows.refuses(f"an item of type {item['type']}", {"input": [item]}, "input[0].type", UNSUPPORTED)
    rows.refuses("a message without content", {"input": [{"type": "message", "role": "user"}]}, "input[0].content")
    rows.refuses("role absent", {"input": [{"content": "hi"}]}, "input[0].role")
    rows.refuses("content absent", {"input": [{"role": "user"}]}, "input[0].content")
    for value in (None, 1):
        rows.refuses(f"content {value!r}", {"input": [{**turn, "content": value}]}, "input[0].content")
    at = "input[0].content[0]"
    for kind in ("image_url", "input_image", "input_file"):
        change = {"input": [{**turn, "content": [{"type": kind, "image_url": "x"}]}]}
        rows.refuses(f"a part of type {kind}", change, f"{at}.type", UNSUPPORTED)
    for value in ({"type": "text"}, {"type": "text", "text": None}, {"type": "text", "text": 1}):
        rows.refuses(f"a part {value}", {"input": [{**turn, "content": [value]}]}, f"{at}.text")
    rows.takes("no limit", {}, {"sampling.max_tokens": 16, "sampling.max_tokens_is_default": True})
    rows.number("max_output_tokens", "sampling.max_tokens", [1, 4096], [0, -1, 3_000_000_000], whole=True)
    rows.refuses("max_output_tokens over the model's own limit", {"max_output_tokens": 4097}, "max_output_tokens")
    rows.samplers(penalties=False)
    rows.seed()
    for value in (False, None):
        rows.takes(f"stream {value}", {"stream": value}, {"stream": ABSENT})
    rows.refuses("stream true", {"stream": True}, "stream", UNSUPPORTED)
    for value in (1, "false"):
        rows.refuses(f"stream {value!r}", {"stream": value}, "stream")
    rows.unknown(
        *("previous_response_id", "tools", "tool_choice", "reasoning", "background", "metadata", "instructions"),
        *("store", "include", "truncation", "user", "max_tokens", "stop"),
    )
    rows.models()
    rows.bodies()
    return rows.rows


def generate() -> list[Row]:
    rows = Rows("/v1/generate/org__chat")
    rows.takes("a prompt", {"prompt": "ho"}, {"prompt": "ho", "messages": ABSENT, "sampling.max_tokens": 8})
    rows.refuses("prompt absent", {"prompt": DELETE}, "prompt")
    for value in ("", None, 1, ["hi"]):
        rows.refuses(f"prompt {value!r}", {"prompt": value}, "prompt")
    rows.refuses("max_new_tokens absent", {"max_new_tokens": DELETE}, "max_new_tokens")
    for value in (0, -1, 2**31, 1.5, "1", True, None):
        rows.refuses(f"max_new_tokens {value!r}", {"max_new_tokens": value}, "max_new_tokens")
    rows.takes("max_new_tokens 12.0", {"max_new_tokens": 12.0}, {"sampling.max_tokens": 12})
    rows.refuses("max_new_tokens over the model's own limit", {"max_new_tokens": 4097}, "max_new_tokens")
    rows.samplers()
    rows.seed()
    rows.stops()
    rows.streams(off=True)
    rows.routes("pool")
    rows.bodies()
    for field in ("routing_key", "prompt_cache_key"):
        rows.takes(field, {field: "k"}, {"routing_key": "k"})
        rows.takes(f"{field} empty", {field: ""}, {"routing_key": ABSENT})
        rows.refuses(f"{field} a number", {field: 1}, field)
    rows.takes("safety_identifier", {"safety_identifier": "me"}, inert=True)
    rows.refuses("safety_identifier a number", {"safety_identifier": 1}, "safety_identifier")
    rows.takes("lora_adapter", {"lora_adapter": "legal"}, {"lora_adapter": "legal"})
    rows.refuses("lora_adapter unknown", {"lora_adapter": "x"}, "lora_adapter", (400, "unknown_lora_adapter"))
    rows.takes("logit_bias", {"logit_bias": {"12": -1}}, {"sampling.logit_bias": {12: -1}})
    rows.takes("logit_bias null", {"logit_bias": None}, {"sampling.logit_bias": ABSENT})
    for name in ("x", "-1", "1.0", "", "٣", "99999999999", "4294967296"):
        rows.refuses(f"logit_bias key {name!r}", {"logit_bias": {name: 1}}, "logit_bias")
    for value in (101, -101, "1", None, True):
        rows.refuses(f"logit_bias value {value!r}", {"logit_bias": {"1": value}}, "logit_bias")
    rows.refuses("logit_bias of 1025", {"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias")
    streamed(rows)
    images(rows)
    grammars(rows)
    options(rows)
    paths(rows)
    rows.unknown("tools", "n", "best_of", "top_k", "messages", "min_tokens", "stream_options", "model", "user")
    return rows.rows


def streamed(rows: Rows) -> None:
    rows.takes("logprobs", {"stream": True, "logprobs": True}, {"sampling.logprobs": 0})
    rows.takes("top_logprobs", {"stream": True, "logprobs": True, "top_logprobs": 3}, {"sampling.logprobs": 3})
    rows.takes("logprobs null", {"logprobs": None, "top_logprobs": None}, {"sampling.logprobs": ABSENT})
    for field, values in {"logprobs": (True, False), "top_logprobs": (0, 3)}.items():
        for value in values:
            rows.refuses(f"{field} {value} without a stream", {field: value}, field, UNSUPPORTED)
    rows.refuses("top_logprobs without logprobs", {"stream": True, "top_logprobs": 1}, "top_logprobs")
    rows.refuses("top_logprobs 21", {"stream": True, "logprobs": True, "top_logprobs": 21}, "top_logprobs")


def images(rows: Rows) -> None:
    def with_image(**members: Any) -> dict[str, Any]:
        return {"images": [{"data": PIXELS, **members}]}

    turn = {"role": "user", "content": [{"type": "image", "index": 0}, {"type": "text", "text": "hi"}]}
    seen = {"prompt": ABSENT, "messages": [turn], "images.0.format": "png", "images.0.param": "images[0].data"}
    rows.takes("an image", with_image(format="png"), seen)
    rows.takes("an image without a format", with_image(format=None), {"images.0.format": ABSENT})
    rows.takes("16 images", {"images": [{"data": PIXELS}] * 16})
    rows.takes("images null", {"images": None}, {"prompt": "hi"})
    for name, value in {"none": [], "17": [{"data": PIXELS}] * 17, "an object": {}}.items():
        rows.refuses(f"images: {name}", {"images": value}, "images")
    rows.refuses("an image of text", {"images": ["x"]}, "images[0]")
    rows.refuses("an image without data", {"images": [{}]}, "images[0].data")
    for value in ("", "!", "a", "https://example.org/a.png", 1, None):
        rows.refuses(f"an image of {value!r}", with_image(data=value), "images[0].data")
    for value in ("", "x" * 33, "a/b", "a b", 1):
        rows.refuses(f"format {value!r}", with_image(format=value), "images[0].format")
    rows.refuses("an image with an unknown key", with_image(url="x"), "images[0].url", UNSUPPORTED)
    blind = {"url": "/v1/generate/org__plain"}
    rows.refuses("an image for a model that is blind", with_image(), "images", UNSUPPORTED, **blind)


def grammars(rows: Rows) -> None:
    field = "grammar"
    rows.takes("grammar null", {field: None}, {field: ABSENT})
    schema = {"type": "object"}
    found = {"kind": "json_schema", "value": '{"type":"object"}', "label": "n", "strict": True, "param": field}
    rows.takes("json_schema", {field: {"json_schema": schema, "label": "n", "strict": True}}, {field: found})
    rows.takes(
        "regex", {field: {"regex": "a+"}}, {"grammar.kind": "regex", "grammar.value": "a+", "grammar.param": field}
    )
    rows.takes("ebnf", {field: {"ebnf": 'root ::= "a"'}}, {"grammar.kind": "ebnf"})
    rows.takes("ebnf without strict", {field: {"ebnf": 'root ::= "a"', "strict": False}})
    for value in ({}, {"label": "x"}, {"regex": "a", "ebnf": "b"}, {"json_schema": {}, "regex": "a"}, "x", []):
        rows.refuses(f"grammar {value}", {field: value}, field)
    rows.refuses("json_schema text", {field: {"json_schema": "x"}}, "grammar.json_schema")
    for kind, most in {"regex": 4096, "ebnf": 8192}.items():
        rows.takes(f"{kind} of {most}", {field: {kind: "a" * most}})
        for value in ("", "a" * (most + 1), 1):
            rows.refuses(f"{kind} {str(value)[:5]!r} {len(str(value))}", {field: {kind: value}}, f"grammar.{kind}")
    rows.refuses("strict with ebnf", {field: {"ebnf": "a", "strict": True}}, "grammar.strict", UNSUPPORTED)
    rows.refuses("grammar with an unknown key", {field: {"regex": "a", "x": 1}}, "grammar.x", UNSUPPORTED)
    rows.refuses("strict text", {field: {"regex": "a", "strict": "yes"}}, "grammar.strict")
    rows.refuses("a label that is a number", {field: {"regex": "a", "label": 1}}, "grammar.label")
    rows.refuses("a large grammar", {field: {"regex": "a", "label": "x" * 65536}}, field)
    bad = {field: {"json_schema": {"properties": {"if": {"if": {}}}}}}
    rows.refuses("a refused keyword", bad, "grammar.json_schema.properties.if.if", UNSUPPORTED)
    for kind, value in {"json_schema": {}, "regex": "a", "ebnf": "a"}.items():
        plain = {"url": "/v1/generate/org__plain"}
        rows.refuses(f"{kind} for a model without", {field: {kind: value}}, f"grammar.{kind}", UNSUPPORTED, **plain)


def options(rows: Rows) -> None:
    field = "options"
    for value in (
        None,
        {},
        {"profile": None},
        {"profile": "default"},
        {"default_sampling": None},
        {"stop_tokens": None},
    ):
        rows.takes(f"options {value}", {field: value}, inert=True)
    default = {"temperature": 0.5, "top_p": 0.9, "presence_penalty": 1, "top_k": 4, "min_new_tokens": 2}
    reached = {
        **{f"sampling.{name}": value for name, value in default.items() if name != "min_new_tokens"},
        "sampling.min_tokens": 2,
    }
    rows.takes("default_sampling", {"options.default_sampling": default}, reached)
    over = {"temperature": 0, "top_p": 1, "presence_penalty": 0}
    won = {f"sampling.{name}": value for name, value in over.items()}
    rows.takes("fields over default_sampling", {**over, "options.default_sampling": default}, won)
    rows.takes("stop_tokens", {"options.stop_tokens": ["<end>"]}, {"sampling.stop_tokens": ["<end>"]})
    for value in ("x", [""], [1]):
        param = "options.stop_tokens" if value == "x" else "options.stop_tokens[0]"
        rows.refuses(f"stop_tokens {value}", {"options.stop_tokens": value}, param)
    for name, good, bad in (
        ("temperature", 0, -1),
        ("top_p", 1, 0),
        ("presence_penalty", 2, 3),
        ("top_k", 1, 0),
        ("min_new_tokens", 0, -1),
    ):
        at = f"options.default_sampling.{name}"
        rows.takes(f"{at} {good}", {at: good})
        rows.takes(f"{at} null", {at: None})
        rows.refuses(f"{at} {bad}", {at: bad}, at)
    hot, least = "options.default_sampling.temperature", "options.default_sampling.min_new_tokens"
    rows.refuses(f"{hot} beyond the engine's", {hot: 2.01}, hot)
    rows.takes(f"{least} of all tokens", {least: 8}, {"sampling.min_tokens": 8})
    rows.refuses(f"{least} above max_new_tokens", {least: 9}, least)
    rows.refuses("default_sampling text", {"options.default_sampling": "x"}, "options.default_sampling")
    odd = "options.default_sampling.seed"
    rows.refuses("default_sampling with an unknown key", {odd: 1}, odd, UNSUPPORTED)
    for name in ("first_chunk_timeout_s", "inter_chunk_timeout_s", "overall_timeout_s"):
        limit = {name.removesuffix("_timeout_s"): 2.5}
        rows.takes(f"options.{name}", {f"options.{name}": 2.5}, limits=limit)
        for value in (0, -1, "1", True):
            rows.refuses(f"options.{name} {value!r}", {f"options.{name}": value}, f"options.{name}")
    rows.refuses("options.profile warm", {"options.profile": "warm"}, "options.profile")
    rows.refuses("options with an unknown key", {"options.x": 1}, "options.x", UNSUPPORTED)
    rows.refuses("options text", {field: "x"}, field)


def paths(rows: Rows) -> None:
    base = "/v1/generate/"
    rows.takes("model with a profile", {}, {"model": "org/chat", "profile": "warm"}, url=f"{base}org__chat:warm")
    rows.takes("model in another case", {}, {"model": "org/chat"}, url=f"{base}ORG__Chat")
    rows.takes("model with a bundle", {}, {"bundle": "other"}, url=f"{base}other:/org__chat")
    for model in ("org/chat", "org%2Fchat", "org/chat/x"):
        rows.refuses(f"model {model}", {}, "model", url=base + model)
    rows.refuses("model unknown", {}, "model", (404, "model_not_found"), url=f"{base}none")
    rows.refuses("model with an unknown profile", {}, "profile", url=f"{base}org__chat:none")
    rows.refuses("model that does not generate", {}, "model", url=f"{base}org__embed")


def rows() -> list[Row]:
    """All of them."""
    return [*completions(), *responses(), *generate()]

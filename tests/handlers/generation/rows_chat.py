"""Rows of chat completions."""

from __future__ import annotations

import base64
from typing import Any

from tests.handlers.scripted import ABSENT, DELETE

from .table import UNSUPPORTED, Row, Rows

PNG = base64.b64encode(b"\x89PNG pixels").decode()
URI = f"data:image/png;base64,{PNG}"
TOOL = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}


def part(**members: Any) -> dict[str, Any]:
    """A first message with one content part."""
    return {"messages.0.content": [members]}


def image(value: Any, type: str = "image_url") -> dict[str, Any]:
    return part(type=type, image_url=value)


def first(**members: Any) -> dict[str, Any]:
    """A first message."""
    return {"messages.0": members}


def sampling(rows: Rows) -> None:
    rows.samplers()
    rows.seed()
    rows.stops()
    for field in ("max_tokens", "max_completion_tokens"):
        rows.number(field, "sampling.max_tokens", [1, 4096], [0, -1, 3_000_000_000, 2**31, 1e18], whole=True)
        rows.takes(f"{field} null is the default", {field: None}, {"sampling.max_tokens": 1024})
        rows.refuses(f"{field} over the model's own limit", {field: 4097}, "max_completion_tokens")
    rows.takes("no limit", {}, {"sampling.max_tokens": 1024, "sampling.max_tokens_is_default": True})
    both = {"max_tokens": 5, "max_completion_tokens": 9}
    rows.takes("both limits", both, {"sampling.max_tokens": 9, "sampling.max_tokens_is_default": ABSENT})
    rows.number("top_k", "sampling.top_k", [1, 50], [0, -1, 2**31], whole=True)
    rows.number("min_tokens", "sampling.min_tokens", [0, 5], [-1], whole=True)
    rows.refuses("min_tokens above max_tokens", {"min_tokens": 9, "max_tokens": 8}, "min_tokens")
    rows.number("repetition_penalty", "sampling.repetition_penalty", [0.1, 2], [0, -1, 2.01])
    rows.takes("n", {"n": 3}, {"sampling.n": 3})
    rows.takes("n null", {"n": None}, {"sampling.n": ABSENT})
    rows.takes("n with a stream", {"n": 2, "stream": True}, {"sampling.n": 2, "stream": True})
    for value in (0, -1, 129, 1.5, "2", True):
        rows.refuses(f"n {value!r}", {"n": value}, "n")
        rows.refuses(f"best_of {value!r}", {"best_of": value}, "best_of")
    rows.takes("best_of", {"n": 2, "best_of": 4}, {"sampling.n": 2, "sampling.best_of": 4})
    rows.takes("best_of equal to n", {"n": 2, "best_of": 2}, {"sampling.best_of": ABSENT})
    rows.takes("best_of null", {"best_of": None}, {"sampling.best_of": ABSENT})
    rows.takes("best_of 1 with a stream", {"best_of": 1, "stream": True}, {"sampling.best_of": ABSENT})
    rows.refuses("best_of with a stream", {"best_of": 2, "stream": True}, "best_of", UNSUPPORTED)
    rows.refuses("best_of below n", {"best_of": 2, "n": 3}, "best_of")
    logprobs(rows)
    biases(rows)


def logprobs(rows: Rows) -> None:
    rows.takes("logprobs", {"logprobs": True}, {"sampling.logprobs": 0})
    rows.takes("logprobs with alternatives", {"logprobs": True, "top_logprobs": 20}, {"sampling.logprobs": 20})
    for value in (False, None):
        rows.takes(f"logprobs {value}", {"logprobs": value}, {"sampling.logprobs": ABSENT})
    rows.takes("top_logprobs 0 alone", {"top_logprobs": 0}, {"sampling.logprobs": ABSENT})
    rows.takes("top_logprobs null", {"logprobs": True, "top_logprobs": None}, {"sampling.logprobs": 0})
    rows.refuses("logprobs 1", {"logprobs": 1}, "logprobs")
    rows.refuses("top_logprobs without logprobs", {"top_logprobs": 1}, "top_logprobs")
    rows.refuses("top_logprobs with logprobs false", {"top_logprobs": 1, "logprobs": False}, "top_logprobs")
    for value in (21, -1, 0.5, "1", True):
        rows.refuses(f"top_logprobs {value!r}", {"logprobs": True, "top_logprobs": value}, "top_logprobs")


def biases(rows: Rows) -> None:
    rows.takes("logit_bias", {"logit_bias": {"12": -100, "7": 1.5}}, {"sampling.logit_bias": {12: -100, 7: 1.5}})
    rows.takes("logit_bias null", {"logit_bias": None}, {"sampling.logit_bias": ABSENT})
    rows.takes("logit_bias empty", {"logit_bias": {}}, {"sampling.logit_bias": ABSENT})
    rows.takes("logit_bias of 1024", {"logit_bias": {str(i): 1 for i in range(1024)}})
    rows.refuses("logit_bias of 1025", {"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias")
    for name in ("x", "-1", "1.0", "", "٣", "99999999999", "4294967296"):
        rows.refuses(f"logit_bias key {name!r}", {"logit_bias": {name: 1}}, "logit_bias")
    for value in (101, -101, "1", None, True):
        rows.refuses(f"logit_bias value {value!r}", {"logit_bias": {"1": value}}, "logit_bias")
    rows.refuses("logit_bias an array", {"logit_bias": []}, "logit_bias")


def extras(rows: Rows) -> None:
    rows.streams()
    for value in ({}, None, {"include_usage": None}, {"include_usage": False}):
        ends = {"-2.choices.0.finish_reason": "stop", "-2.usage": ABSENT, "-1": "[DONE]"}
        rows.takes(f"stream_options {value}", {"stream_options": value, "stream": True}, answers=ends)
    counted = {"-3.choices.0.finish_reason": "stop", "-2.choices": [], "-2.usage.total_tokens": 9, "-1": "[DONE]"}
    rows.takes("include_usage", {"stream_options": {"include_usage": True}, "stream": True}, answers=counted)
    rows.takes("stream_options without a stream", {"stream_options": {"include_usage": True}}, inert=True)
    rows.refuses("stream_options text", {"stream_options": "x"}, "stream_options")
    rows.refuses("include_usage 1", {"stream_options.include_usage": 1}, "stream_options.include_usage")
    rows.refuses("stream_options unknown", {"stream_options.chunk": 1}, "stream_options.chunk", UNSUPPORTED)
    rows.takes("lora_adapter", {"lora_adapter": "legal"}, {"lora_adapter": "legal"})
    rows.takes("lora_adapter null", {"lora_adapter": None}, {"lora_adapter": ABSENT})
    rows.refuses("lora_adapter unknown", {"lora_adapter": "x"}, "lora_adapter", (400, "unknown_lora_adapter"))
    for value in ("", 1):
        rows.refuses(f"lora_adapter {value!r}", {"lora_adapter": value}, "lora_adapter")
    for field in ("routing_key", "prompt_cache_key"):
        rows.takes(field, {field: "k"}, {"routing_key": "k"})
        rows.takes(f"{field} empty", {field: ""}, {"routing_key": ABSENT})
        rows.takes(f"{field} null", {field: None}, {"routing_key": ABSENT})
        rows.refuses(f"{field} a number", {field: 1}, field)
    rows.takes("both keys", {"routing_key": "a", "prompt_cache_key": "b"}, {"routing_key": "a"})
    for field in ("user", "safety_identifier"):
        rows.takes(field, {field: "me"}, inert=True)
        rows.takes(f"{field} null", {field: None}, inert=True)
        rows.refuses(f"{field} a number", {field: 1}, field)
    template(rows)
    rows.unknown(
        *("functions", "function_call", "modalities", "audio", "metadata", "store", "service_tier"),
        *("prediction", "reasoning_effort", "verbosity", "min_p", "echo", "unheard_of"),
    )
    rows.models()
    rows.bodies()
    rows.refuses("a model that does not stream", {"model": "org/plain", "stream": True}, "stream", UNSUPPORTED)


def template(rows: Rows) -> None:
    field, harm = "chat_template_kwargs", {"guardian_config": {"risk_name": "harm"}}
    rows.takes(f"{field} of the model", {}, {field: harm})
    rows.takes(f"{field} null", {field: None}, {field: harm})
    rows.takes("enable_thinking", {f"{field}.enable_thinking": False}, {field: {"enable_thinking": False, **harm}})
    rows.takes("enable_thinking null", {f"{field}.enable_thinking": None}, {field: harm})
    rows.takes("the model's own template option wins", {f"{field}.guardian_config.risk_name": "x"}, {field: harm})
    rows.takes(
        "the profile's own template option wins",
        {"model": "org/chat:warm", f"{field}.enable_thinking": False},
        {field: {"enable_thinking": True, **harm}},
    )
    rows.takes("template option of 128 characters", {f"{field}.guardian_config.risk_name": "x" * 128})
    rows.refuses(f"{field} an array", {field: []}, field)
    rows.refuses("enable_thinking 1", {f"{field}.enable_thinking": 1}, f"{field}.enable_thinking")
    rows.refuses("template option unknown", {f"{field}.think": 1}, f"{field}.think", UNSUPPORTED)
    guardian = f"{field}.guardian_config"
    own = {"model": "org/plain", guardian: {"risk_name": "jailbreak"}}
    rows.takes("guardian_config", own, {field: {"guardian_config": {"risk_name": "jailbreak"}}})
    rows.refuses("guardian_config text", {guardian: "harm"}, guardian)
    rows.refuses("guardian_config without a risk", {guardian: {}}, f"{guardian}.risk_name")
    for value in ("", "x" * 129, 1, None):
        rows.refuses(f"risk_name {str(value)[:9]!r}", {f"{guardian}.risk_name": value}, f"{guardian}.risk_name")
    more = {guardian: {"risk_name": "a", "b": 1}}
    rows.refuses("guardian option unknown", more, f"{guardian}.b", UNSUPPORTED)


def messages(rows: Rows) -> None:
    said = "messages.0.content"
    for role, becomes in {"system": "system", "user": "user", "assistant": "assistant", "developer": "system"}.items():
        rows.takes(f"role {role}", {"messages.0.role": role}, {"messages.0.role": becomes})
    rows.refuses("messages absent", {"messages": DELETE}, "messages")
    for value in (None, "hi", [], {}):
        rows.refuses(f"messages {value!r}", {"messages": value}, "messages")
    rows.refuses("a message that is text", {"messages.0": "hi"}, "messages[0]")
    rows.refuses("role absent", {"messages.0.role": DELETE}, "messages[0].role")
    for value in ("boss", "", None, 1):
        rows.refuses(f"role {value!r}", {"messages.0.role": value}, "messages[0].role")
    rows.takes("empty text", {said: ""}, {said: ""})
    rows.takes("empty parts", {said: []}, {said: ""})
    for name, value in {"absent": DELETE, "null": None}.items():
        rows.refuses(f"content {name}", {said: value}, "messages[0].content", UNSUPPORTED)
    rows.refuses("content a number", {said: 1}, "messages[0].content")
    two = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]
    rows.takes("text parts", {said: two}, {said: "ab"})
    rows.refuses("a part without a type", {said: [{"text": "a"}]}, "messages[0].content[0].type")
    rows.refuses("a part that is text", {said: ["a"]}, "messages[0].content[0]")
    rows.refuses("a part of another type", part(type="video_url"), "messages[0].content[0].type", UNSUPPORTED)
    rows.refuses("a part whose type is a number", part(type=1), "messages[0].content[0].type")
    rows.refuses("a text part without text", part(type="text"), "messages[0].content[0].text")
    for value in (None, 1):
        rows.refuses(f"a text part of {value!r}", part(type="text", text=value), "messages[0].content[0].text")
    two = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    rows.takes("messages in their order", {"messages": two}, {"messages": two})
    rows.takes("a name", {"messages.0.name": "ann"}, {"messages.0.name": "ann"})
    rows.refuses("a name that is a number", {"messages.0.name": 1}, "messages[0].name")
    rows.takes("unknown keys of a message", {"messages.0.refusal": None, "messages.0.annotations": []})
    replay(rows)
    images(rows)


def replay(rows: Rows) -> None:
    calls, at = "messages.0.tool_calls", "messages[0].tool_calls"
    said = {"messages.0": {"role": "assistant", "content": None, "tool_calls": [CALL]}}
    rows.takes("a replayed call", said, {"messages.0.content": "", calls: [CALL]})
    rows.takes("a replayed call without content", first(role="assistant", tool_calls=[CALL]), {calls: [CALL]})
    rows.takes("a replayed call with content", first(role="assistant", content="x", tool_calls=[CALL]))
    rows.takes("tool_calls null", first(role="assistant", content="x", tool_calls=None))
    for value in (None, []):
        quiet = first(role="assistant", tool_calls=value)
        rows.refuses(f"an assistant that says nothing, calls {value}", quiet, "messages[0].content", UNSUPPORTED)
    rows.refuses("tool_calls of a user", {calls: [CALL]}, at)
    for name, member, value in (
        ("id", "id", DELETE),
        ("id", "id", ""),
        ("id", "id", 1),
        ("type", "type", DELETE),
        ("type", "type", "tool"),
        ("function", "function", DELETE),
        ("function.name", "function.name", ""),
        ("function.name", "function.name", DELETE),
        ("function.arguments", "function.arguments", DELETE),
        ("function.arguments", "function.arguments", {}),
        ("function.arguments", "function.arguments", None),
    ):
        change = {**said, f"{calls}.0.{member}": value}
        kind = "absent" if value is DELETE else repr(value)
        rows.refuses(f"a replayed call's {name} {kind}", change, f"{at}[0].{name}")
    answer = first(role="tool", content="42", tool_call_id="call_1")
    rows.takes("a tool's answer", answer, {"messages.0": {"role": "tool", "content": "42", "tool_call_id": "call_1"}})
    for value in (DELETE, None, ""):
        lone = {**answer, "messages.0.tool_call_id": value}
        kind = "absent" if value is DELETE else repr(value)
        rows.refuses(f"a tool's answer with its call {kind}", lone, "messages[0].tool_call_id")
    rows.refuses("tool_call_id of a user", {"messages.0.tool_call_id": "x"}, "messages[0].tool_call_id")
    rows.refuses("a tool that says nothing", first(role="tool", tool_call_id="c"), "messages[0].content", UNSUPPORTED)


def images(rows: Rows) -> None:
    where = "messages[0].content[0].image_url"
    seen = {
        "messages.0.content": [{"type": "image", "index": 0}],
        "images.0.format": "png",
        "images.0.param": where,
    }
    for kind in ("image_url", "input_image"):
        rows.takes(f"{kind} as text", image(URI, kind), seen)
        rows.takes(f"{kind} as an object", image({"url": URI, "detail": "low"}, kind), seen)
    rows.takes("an image in capitals", image(URI.replace("data:image/png", "DATA:IMAGE/PNG")), seen)
    rows.takes("an image with a parameter", image(URI.replace("png;", "svg+xml;charset=utf-8;")))
    mixed = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": URI}, {"type": "text", "text": "b"}]
    order = [{"type": "text", "text": "a"}, {"type": "image", "index": 0}, {"type": "text", "text": "b"}]
    rows.takes("text around an image", {"messages.0.content": mixed}, {"messages.0.content": order})
    pictures = [{"type": "image_url", "image_url": URI}]
    rows.takes("16 images", {"messages.0.content": pictures * 16})
    rows.refuses("17 images", {"messages.0.content": pictures * 17}, "messages")
    for name, value in {
        "remote": "https://example.org/a.png",
        "a file": "file:///etc/passwd",
        "text as data": "data:text/plain;base64,aGk=",
        "not base64": "data:image/png,abc",
        "broken base64": "data:image/png;base64,a",
        "base64 with spaces": f"data:image/png;base64,{PNG[:4]} {PNG[4:]}",
        "URL-safe base64": "data:image/png;base64,_-8=",
        "empty": "data:image/png;base64,",
        "no address": "",
    }.items():
        rows.refuses(f"an image, {name}", image(value), where)
    rows.refuses("an image without an address", part(type="image_url"), where)
    rows.refuses("an image that is a number", image(1), where)
    rows.refuses("an image whose url is a number", image({"url": 1}), f"{where}.url")
    rows.refuses("an image object without a url", image({"detail": "low"}), f"{where}.url")
    rows.refuses("a detail that is a number", image({"url": URI, "detail": 1}), f"{where}.detail")
    rows.refuses("an image for a model that is blind", {"model": "org/plain", **image(URI)}, "messages", UNSUPPORTED)


def tools(rows: Rows) -> None:
    rows.takes("tools", {"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "auto"})
    rows.takes("tools null", {"tools": None}, {"tools": ABSENT})
    rows.takes("64 tools", {"tools": [TOOL] * 64})
    for name, value in {"65": [TOOL] * 65, "none": [], "an object": {}, "text": "x"}.items():
        rows.refuses(f"tools: {name}", {"tools": value}, "tools")
    bare = [{"type": "function", "function": {"name": "f", "description": None, "parameters": None, "strict": True}}]
    kept = [{"type": "function", "function": {"name": "f", "strict": True}}]
    rows.takes("a bare tool", {"tools": bare}, {"tools": kept})
    for kind in ({}, {"type": "object"}, {"type": ["object", "null"]}):
        rows.takes(
            f"parameters of {kind}", {"tools": [TOOL], "tools.0.function.parameters": {**kind, "properties": {}}}
        )
    at = "tools[0].function"
    for path, param, value in (
        ("type", "tools[0].type", "retrieval"),
        ("type", "tools[0].type", DELETE),
        ("function", at, DELETE),
        ("function.name", f"{at}.name", DELETE),
        ("function.name", f"{at}.name", ""),
        ("function.description", f"{at}.description", 1),
        ("function.strict", f"{at}.strict", "yes"),
        ("function.parameters", f"{at}.parameters", []),
        ("function.parameters", f"{at}.parameters.type", {"type": "string"}),
        ("function.parameters", f"{at}.parameters.type", {"type": ["null", "array"]}),
    ):
        kind = "absent" if value is DELETE else repr(value)
        rows.refuses(f"a tool's {path} {kind}", {"tools": [TOOL], f"tools.0.{path}": value}, param)
    for path in ("", "function."):
        change = {"tools": [TOOL], f"tools.0.{path}cached": True}
        rows.refuses(f"a tool with an unknown key: {path}", change, f"tools[0].{path}cached", UNSUPPORTED)
    deep = {"tools": [TOOL], "tools.0.function.parameters": {"properties": {"a": {"if": {}}}}}
    rows.refuses("a tool with a schema that is refused", deep, f"{at}.parameters.properties.a.if", UNSUPPORTED)
    rows.refuses("tools for a model without", {"model": "org/plain", "tools": [TOOL]}, "tools", UNSUPPORTED)
    named = {"type": "function", "function": {"name": "look"}}
    for value in ("auto", "none", "required", named):
        rows.takes(f"tool_choice {value}", {"tools": [TOOL], "tool_choice": value}, {"tool_choice": value})
    rows.takes("tool_choice null", {"tools": [TOOL], "tool_choice": None}, {"tool_choice": "auto"})
    rows.takes("tool_choice null without tools", {"tool_choice": None}, {"tool_choice": ABSENT})
    for value in ("auto", "none", "required", named):
        rows.refuses(f"tool_choice {value} without tools", {"tool_choice": value}, "tool_choice")
    stranger = {"type": "function", "function": {"name": "other"}}
    rows.refuses("tool_choice of a stranger", {"tools": [TOOL], "tool_choice": stranger}, "tool_choice")
    for value in ("any", "", 1, []):
        rows.refuses(f"tool_choice {value!r}", {"tools": [TOOL], "tool_choice": value}, "tool_choice")
    for field, value in (("type", "x"), ("type", DELETE), ("function", DELETE), ("function.name", DELETE)):
        kind = "absent" if value is DELETE else repr(value)
        change = {"tools": [TOOL], "tool_choice": dict(named), f"tool_choice.{field}": value}
        if field == "function.name":
            change = {"tools": [TOOL], "tool_choice": {"type": "function", "function": {}}}
        rows.refuses(f"tool_choice with {field} {kind}", change, f"tool_choice.{field}")
    for path in ("", "function."):
        change = {"tools": [TOOL], "tool_choice": dict(named), f"tool_choice.{path}mode": 1}
        rows.refuses(f"tool_choice with an unknown key: {path}", change, f"tool_choice.{path}mode", UNSUPPORTED)
    rows.takes("parallel_tool_calls false", {"parallel_tool_calls": False}, {"parallel_tool_calls": False})
    for value in (True, None):
        rows.takes(f"parallel_tool_calls {value}", {"parallel_tool_calls": value}, {"parallel_tool_calls": ABSENT})
    rows.refuses("parallel_tool_calls 1", {"parallel_tool_calls": 1}, "parallel_tool_calls")
    for value in ("required", named):
        for form in (FORMAT, {"type": "json_object"}):
            change = {"tools": [TOOL], "tool_choice": value, "response_format": form}
            rows.refuses(f"tool_choice {value} beside {form['type']}", change, "tool_choice")
        calm = {"tools": [TOOL], "tool_choice": value, "response_format": {"type": "text"}}
        rows.takes(f"tool_choice {value} beside text", calm)
        ended = {"tools": [TOOL], "tool_choice": value, "stop": ["x"]}
        rows.refuses(f"tool_choice {value} beside stop", ended, "stop", UNSUPPORTED)
        rows.takes(f"tool_choice {value} beside no stop", {**ended, "stop": []})
    rows.takes("tool_choice auto beside stop", {"tools": [TOOL], "tool_choice": "auto", "stop": ["x"]})


def formats(rows: Rows) -> None:
    field, at = "response_format", "response_format.json_schema"
    for value in (None, {"type": "text"}, {"type": "text", "json_schema": None}):
        rows.takes(f"{field} {value}", {field: value}, {"grammar": ABSENT})
    rows.takes("json_object", {field: {"type": "json_object"}}, {"grammar.kind": "json_object", "grammar.param": field})
    text = '{"type":"object","properties":{"a":{"type":"integer"}}}'
    found = {"kind": "json_schema", "value": text, "label": "n", "strict": True, "param": field}
    rows.takes("json_schema", {field: FORMAT}, {"grammar": found})
    rows.takes(
        "json_schema bare", {field: {"type": "json_schema", "json_schema": {"schema": {}}}}, {"grammar.value": "{}"}
    )
    rows.refuses(f"{field} text", {field: "text"}, field)
    rows.refuses(f"{field} without a type", {field: {}}, f"{field}.type")
    rows.refuses(f"{field} with a type that is null", {field: {"type": None}}, f"{field}.type")
    for value in ("regex", "grammar", "xml"):
        rows.refuses(f"{field} {value}", {field: {"type": value}}, f"{field}.type", UNSUPPORTED)
    for value in (DELETE, None, {}, {"name": "n"}, {"schema": None}, {"schema": []}, {"schema": "x"}):
        kind = "absent" if value is DELETE else str(value)
        rows.refuses(f"json_schema {kind}", {field: dict(FORMAT), at: value}, at)
    rows.refuses("json_schema text", {field: {"type": "json_schema", "json_schema": "x"}}, at)
    for member, value in (("name", 1), ("strict", "yes"), ("description", [])):
        change = {field: {"type": "json_schema", "json_schema": {"schema": {}, member: value}}}
        rows.refuses(f"json_schema.{member} {value!r}", change, f"{at}.{member}")
    odd = {field: {"type": "text", "regex": "a"}}
    rows.refuses("a format with an unknown key", odd, f"{field}.regex", UNSUPPORTED)
    odd = {field: {"type": "json_schema", "json_schema": {"schema": {}, "mode": 1}}}
    rows.refuses("json_schema with an unknown key", odd, f"{at}.mode", UNSUPPORTED)
    unlike = {field: {"type": "json_schema", "json_schema": {"schema": {"then": {}}}}}
    rows.refuses("a schema with a refused keyword", unlike, f"{at}.schema.then", UNSUPPORTED)
    for form in (FORMAT, {"type": "json_object"}):
        change = {"model": "org/plain", field: form}
        rows.refuses(f"{form['type']} for a model without", change, "grammar.json_schema", UNSUPPORTED)


def rows() -> list[Row]:
    """All of them."""
    table = Rows("/v1/chat/completions")
    for group in (sampling, extras, messages, tools, formats):
        group(table)
    return table.rows

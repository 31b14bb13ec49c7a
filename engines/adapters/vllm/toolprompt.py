"""Tools for a chat template that knows none: they are described in the system message, calls are written as text.

The form is the one of Hermes models, which the parser ``hermes`` reads back.
"""

from __future__ import annotations

import json
from typing import Any

INTRODUCTION = (
    "You may call functions to help with the user's request. They are described within <tools></tools> tags:\n"
    "<tools>\n{tools}\n</tools>\n"
    "For each call, write one JSON object with the function's name and arguments within <tool_call></tool_call> tags:\n"
    '<tool_call>\n{{"name": "<function name>", "arguments": {{"<argument>": <value>}}}}\n</tool_call>'
)


def described(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The conversation with tools, calls and their results written out as plain messages."""
    plain = [_plain(message) for message in messages]
    if not tools:
        return plain
    text = INTRODUCTION.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if plain and plain[0]["role"] == "system":
        said = plain[0].get("content") or ""
        return [{**plain[0], "content": f"{said}\n\n{text}" if said else text}, *plain[1:]]
    return [{"role": "system", "content": text}, *plain]


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not calls:
        return message
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    written = [_written(call["function"]) for call in calls]
    said = message.get("content") or ""
    return {**rest, "content": "\n".join([said, *written] if said else written)}


def _written(function: dict[str, Any]) -> str:
    call = {"name": function["name"], "arguments": _arguments(function.get("arguments"))}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


def _arguments(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) and text else {}
    except ValueError:
        return {}

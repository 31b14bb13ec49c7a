"""The requests of the public Open Responses suite that this surface serves, and what it asks of each answer.

Source: openresponses.org, the requests of the same names and the required members of its ResponseResource.
"""

from __future__ import annotations

from typing import Any

NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
NULLABLE = (
    "incomplete_details",
    "previous_response_id",
    "instructions",
    "error",
    "reasoning",
    "user",
    "max_output_tokens",
    "max_tool_calls",
    "safety_identifier",
    "prompt_cache_key",
)


def message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


REQUESTS = {
    "basic-response": [message("user", "Say hello in exactly 3 words.")],
    "system-prompt": [
        message("system", "You are a pirate. Always respond in pirate speak."),
        message("user", "Say hello."),
    ],
    "multi-turn": [
        message("user", "My name is Alice."),
        message("assistant", "Hello Alice! Nice to meet you. How can I help you today?"),
        message("user", "What is my name?"),
    ],
}


def conforms(body: dict[str, Any]) -> None:
    """Assert that an answer is a complete ResponseResource."""
    assert (body["object"], body["status"], body["tools"], body["tool_choice"]) == ("response", "completed", [], "auto")
    assert all(isinstance(body[key], int | float) for key in NUMBERS)
    assert all(isinstance(body[key], int) for key in ("created_at", "completed_at", "top_logprobs"))
    assert all(isinstance(body[key], bool) for key in ("parallel_tool_calls", "store", "background"))
    assert all(key in body for key in NULLABLE)
    assert body["text"] == {"format": {"type": "text"}}
    assert body["truncation"] == "disabled"
    assert isinstance(body["service_tier"], str)
    assert body["metadata"] == {}
    (item,) = body["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    (part,) = item["content"]
    assert (part["type"], part["annotations"], part["logprobs"]) == ("output_text", [], [])
    assert part["text"]
    assert body["usage"]["input_tokens_details"]["cached_tokens"] >= 0
    assert body["usage"]["input_tokens_details"]["cache_write_tokens"] == 0
    assert body["usage"]["output_tokens_details"]["reasoning_tokens"] >= 0

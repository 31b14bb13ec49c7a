"""Rules that no schema can state, obeyed: well-formed random bodies made into ones that engines can work on.

Random bodies nearly always break a rule across fields, so that without this the fuzzer would see many refusals and
hardly an answer. Values that no rule speaks of stay as they were drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.live import CHAT_MODEL, EMBEDDING_MODEL, ENTITY_MODEL

Body = dict[str, Any]
TEXT = "The sea is wide."


def chat(body: Body) -> None:
    body["messages"] = [_message(message) for message in body["messages"][:3]]
    _sampling(body)
    _drop(body, "lora_adapter", "chat_template_kwargs")
    if body.get("stream") or (body.get("best_of") or 1) < (body.get("n") or 1):
        _drop(body, "best_of")
    if not body.get("tools"):
        _drop(body, "tools", "tool_choice")
    else:
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        body["tools"] = [tool]
        if isinstance(body.get("tool_choice"), dict):
            body["tool_choice"] = {"type": "function", "function": {"name": "look"}}
        _drop(body, "response_format")
    if (body.get("response_format") or {}).get("type") == "json_schema":
        body["response_format"]["json_schema"] = {"name": "any", "schema": {"type": "object"}}


def completions(body: Body) -> None:
    body["prompt"] = _text(body["prompt"])
    _sampling(body)
    if body.get("n"):
        body["n"] = 1


def responses(body: Body) -> None:
    body["input"] = _text(body["input"])
    _sampling(body)


def generate(body: Body) -> None:
    body["prompt"] = _text(body["prompt"])
    _sampling(body)
    _drop(body, "images", "lora_adapter", "grammar", "options")
    if body.get("logprobs"):
        body["stream"] = True


def embeddings(body: Body) -> None:
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    body["input"] = [_text(text) for text in texts[:3]] or [TEXT]
    _drop(body, "dimensions")


def rerank(body: Body) -> None:
    body["query"] = _text(body["query"])
    body["documents"] = [
        {**document, "text": _text(document.get("text"))} if isinstance(document, dict) else _text(document)
        for document in body["documents"][:3]
    ]
    _drop(body, "options")


def encode(body: Body) -> None:
    body["items"] = _items(body["items"])
    _drop(body, "params")


def score(body: Body) -> None:
    body["query"] = {"text": TEXT}
    body["items"] = _items(body["items"])
    _drop(body, "options")


def extract(body: Body) -> None:
    body["items"] = _items(body["items"])
    _drop(body, "params")


OBEDIENT: dict[str, tuple[str, Callable[[Body], None]]] = {
    "proxy_chat": (CHAT_MODEL, chat),
    "proxy_completions": (CHAT_MODEL, completions),
    "proxy_responses": (CHAT_MODEL, responses),
    "proxy_generate": (CHAT_MODEL.replace("/", "__"), generate),
    "proxy_openai_embeddings": (EMBEDDING_MODEL, embeddings),
    "proxy_rerank": (EMBEDDING_MODEL, rerank),
    "proxy_rerank_v2": (EMBEDDING_MODEL, rerank),
    "proxy_encode": (EMBEDDING_MODEL, encode),
    "proxy_score": (EMBEDDING_MODEL, score),
    "proxy_extract": (ENTITY_MODEL, extract),
}
"""Operation -> the model that can do it, and its rules."""


def _message(message: Body) -> Body:
    role = message["role"]
    said = {"role": role, "content": _text(message.get("content"))}
    if role == "tool":
        said["tool_call_id"] = "call_1"
    return said


def _sampling(body: Body) -> None:
    """The engine takes temperatures up to 2; stop strings are not empty; alternatives are asked for with logprobs."""
    if (body.get("temperature") or 0) > 2:
        body["temperature"] = 2
    stop = body.get("stop")
    if stop is not None:
        body["stop"] = [text for text in ([stop] if isinstance(stop, str) else stop) if text] or None
    if body.get("top_logprobs"):
        body["logprobs"] = True
    _drop(body, "min_tokens", "logit_bias")


def _items(items: list[Any]) -> list[Body]:
    texts = [_text(item.get("text")) if isinstance(item, dict) else TEXT for item in items[:3]]
    return [{"text": text} for text in texts]


def _text(drawn: object) -> str:
    return drawn if isinstance(drawn, str) and drawn.strip() else TEXT


def _drop(body: Body, *names: str) -> None:
    for name in names:
        body.pop(name, None)

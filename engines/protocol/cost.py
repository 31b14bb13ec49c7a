"""What work weighs before anybody has looked into it: an estimate in tokens, for budgets of gateways and workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from .work import EncodeWork, ExtractWork, GenerateWork, Image, Item, ScoreWork, TranscribeWork, Work

BYTES_PER_TOKEN: Final = 4
IMAGE_TOKENS: Final = 1024
AUDIO_BYTES_PER_TOKEN: Final = 256
"""A compressed second of speech is some 6 kB and is transcribed to a few dozen steps of the decoder."""


def cost(work: Work) -> int:
    """Tokens that go in, by their bytes, and tokens that may come out; at least 1."""
    match work:
        case GenerateWork():
            prompt = _text(work.prompt) if work.messages is None else _nested(work.messages)
            prompt += _images(work.images) + _nested(work.tools)
            return 1 + prompt + work.sampling.max_tokens * max(work.sampling.n, work.sampling.best_of or 1)
        case EncodeWork() | ExtractWork():
            return 1 + _items(work.items)
        case ScoreWork():
            # the query is read anew with every item
            return 1 + _items(work.items) + len(work.items) * _items([work.query])
        case TranscribeWork():
            return 1 + len(work.audio) // AUDIO_BYTES_PER_TOKEN


def _items(items: Iterable[Item]) -> int:
    return sum(
        1 + _text(item.text) + _images(item.images) + len(item.document or b"") // BYTES_PER_TOKEN for item in items
    )


def _images(images: list[Image]) -> int:
    return len(images) * IMAGE_TOKENS


def _text(text: str | None) -> int:
    return len(text or "") // BYTES_PER_TOKEN


def _nested(value: Any) -> int:
    """Tokens of all texts in a JSON value."""
    if isinstance(value, str):
        return len(value) // BYTES_PER_TOKEN
    if isinstance(value, dict):
        return sum(map(_nested, value.values()))
    if isinstance(value, list):
        return sum(map(_nested, value))
    return 0

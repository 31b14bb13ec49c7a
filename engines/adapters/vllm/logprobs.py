"""Log probabilities in the protocol's form, sent together with the text they describe."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

from ...protocol.events import PromptToken, TokenLogprob

FLOOR = -9999.0


class Vocabulary:
    """The tokens of a model: ``size`` of them, their text and their raw bytes."""

    def __init__(self, tokenizer: Any, size: int) -> None:
        self.size = size
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)
        self._bytes = {character: byte for byte, character in bytes_to_unicode().items()}
        self._byte_level = "ByteLevel" in _serialised(tokenizer)
        self.token = lru_cache(maxsize=65536)(self._token)

    def index(self, text: str) -> int | None:
        """The id of the token with exactly this text, if there is one."""
        found = self._tokenizer.convert_tokens_to_ids(text)
        return found if found is not None and self._tokenizer.convert_ids_to_tokens(found) == text else None

    def _token(self, index: int) -> tuple[str, bytes, bool]:
        """Text, bytes, and whether the token shows in the text."""
        raw = self._tokenizer.convert_ids_to_tokens(index)
        if raw is None:
            return "", b"", False
        if index in self._special:
            return raw, raw.encode(), False
        if self._byte_level and all(character in self._bytes for character in raw):
            data = bytes(self._bytes[character] for character in raw)
        elif len(raw) == 6 and raw.startswith("<0x") and raw.endswith(">"):
            data = bytes([int(raw[3:5], 16)])
        else:
            data = raw.replace("\u2581", " ").encode()
        return data.decode(errors="replace"), data, True


def _serialised(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return "" if backend is None else str(backend.decoder) + str(backend.pre_tokenizer)


def entries(vocabulary: Vocabulary, positions: Sequence[Any], tokens: Sequence[int], top: int) -> list[TokenLogprob]:
    """One entry per generated token with its ``top`` most likely alternatives, best first.

    ``positions`` is vLLM's: for each token a mapping of token id to ``Logprob``, the chosen one included.
    """
    found = []
    for token, position in zip(tokens, positions, strict=False):
        others = [_entry(vocabulary, index, position[index].logprob) for index in _ranked(position, top)]
        found.append(_entry(vocabulary, token, position[token].logprob, others))
    return found


def _ranked(position: Any, top: int) -> list[int]:
    return sorted(position, key=lambda index: position[index].rank or 0)[:top]


def _entry(vocabulary: Vocabulary, token: int, logprob: float, top: list[TokenLogprob] | None = None) -> TokenLogprob:
    text, data, _ = vocabulary.token(token)
    return TokenLogprob(text, _finite(logprob), data, top or [])


def _finite(logprob: float) -> float:
    return max(logprob, FLOOR) if math.isfinite(logprob) else FLOOR


def named_by_id(tokens: Sequence[int], positions: Sequence[Any], found: list[TokenLogprob], top: int) -> None:
    """Name the tokens of ``found`` ``token_id:<id>``, which also says what has no text of its own."""
    for token, position, entry in zip(tokens, positions, found, strict=False):
        entry.token = f"token_id:{token}"
        for index, other in zip(_ranked(position, top), entry.top, strict=True):
            other.token = f"token_id:{index}"


def of_prompt(positions: Sequence[Any]) -> list[list[PromptToken] | None]:
    """Log probabilities of a prompt: at each place its token first, then the others by rank; ``None`` for the first."""
    return [
        None
        if position is None
        else [
            PromptToken(token, one.decoded_token or "", _finite(one.logprob), one.rank)
            for token, one in position.items()
        ]
        for position in positions
    ]


class Alignment:
    """Holds entries back until the text of their token has been sent; drops those of text that never is.

    vLLM holds text back that may begin a stop string, and the bytes of half a character. The token that ended the
    generation, thoughts and the text of tool calls are in nobody's ``content``, so neither are their entries.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int, TokenLogprob]] = deque()
        self._generated = 0

    def add(self, entry: TokenLogprob, shown: bool) -> None:
        """The next generated token; ``shown`` is whether it becomes text at all."""
        if shown:
            begin = self._generated
            self._generated += len(entry.bytes)
            self._waiting.append((begin, self._generated, entry))

    def release(self, begin: int, end: int, *, last: bool) -> list[TokenLogprob]:
        """The entries of bytes ``begin`` to ``end`` of the generated text, each once.

        With ``last`` also that of a token which was sent in part, a stop string having cut it.
        """
        ready = []
        while self._waiting:
            first, after, entry = self._waiting[0]
            if after > end and not (last and first < end):
                break
            self._waiting.popleft()
            if after > begin:
                ready.append(entry)
        if last:
            self._waiting.clear()
        return ready

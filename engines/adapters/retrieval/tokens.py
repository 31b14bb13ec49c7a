"""From texts to token ids, with a tokenizer that nobody else uses: truncation is a setting that changes under use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tokenizers import Tokenizer

from ..base import WorkError
from .texts import Text

NO_LIMIT = 1_000_000


CAP: Final = "options.max_seq_length"
"""Where a request says how many tokens it wants at most."""


class NoRoom(ValueError):
    """A ``limit`` of tokens that what stands before a text fills; ``param`` names that, where the caller sent it."""

    def __init__(self, what: str, limit: int, param: str | None = None) -> None:
        super().__init__(f"{what} and leaves no room for documents within {limit}")
        self.limit = limit
        self.param = param

    def refusal(self, cap: int | None) -> WorkError:
        """The error of a request that has ``cap`` as its own limit."""
        if self.limit != cap:
            return WorkError("INVALID_INPUT", str(self), param=self.param)
        return WorkError("INVALID_INPUT", f"{CAP} is too small: {self}", param=CAP)


class Tokens:
    """The Rust tokenizer of a library's fast ``tokenizer``, copied. One thread at a time may use it."""

    def __init__(self, tokenizer: Any) -> None:
        self._rust = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._rust.no_padding()
        self._rust.no_truncation()
        self._side: str = tokenizer.truncation_side

    def encode(self, texts: Sequence[Text], widths: Sequence[int]) -> list[Any]:
        """The encoding of each text, of at most as many tokens as its width; of a pair only the second part is cut.

        Raises:
            NoRoom: special tokens alone, or the first part of a pair, fill the width.
        """
        alike: dict[tuple[int, bool], list[int]] = {}
        for index, (text, width) in enumerate(zip(texts, widths, strict=True)):
            alike.setdefault((width, text.pair is not None), []).append(index)
        done: list[Any] = [None] * len(texts)
        for (width, pairs), indices in alike.items():
            some = [texts[index] for index in indices]
            encodings = self._pairs(some, width) if pairs else self._single(some, width)
            for index, encoding in zip(indices, encodings, strict=True):
                done[index] = encoding
        return done

    def _single(self, texts: Sequence[Text], width: int) -> Sequence[Any]:
        check_room(width, self._rust)
        if width < NO_LIMIT:
            self._rust.enable_truncation(width, direction=self._side)
        else:
            self._rust.no_truncation()
        found: Sequence[Any] = self._rust.encode_batch_fast([text.prompt + text.text for text in texts])
        return found

    def _pairs(self, texts: Sequence[Text], width: int) -> Sequence[Any]:
        self._rust.no_truncation()
        queries = list(dict.fromkeys(text.prompt + text.text for text in texts))
        room = width - self._rust.num_special_tokens_to_add(True)
        for encoding in self._rust.encode_batch_fast(queries, add_special_tokens=False):
            if len(encoding) >= room:
                raise NoRoom(f"the query has {len(encoding)} tokens beside special ones", width, "query")
        if width < NO_LIMIT:
            self._rust.enable_truncation(width, strategy="only_second", direction=self._side)
        found: Sequence[Any] = self._rust.encode_batch_fast([(text.prompt + text.text, text.pair) for text in texts])
        return found


def check_room(width: int, tokenizer: Any, *, pair: bool = False) -> None:
    """Below its number of special tokens a tokenizer does not truncate at all, and at it every text is the same.

    Raises:
        NoRoom: so few tokens are allowed.
    """
    special = tokenizer.num_special_tokens_to_add(pair)
    if width <= special:
        raise NoRoom(f"the model adds {special} special tokens", width)

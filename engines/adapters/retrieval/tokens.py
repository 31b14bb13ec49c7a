"""From texts to token ids, with a tokenizer that nobody else uses: truncation is a setting that changes under use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        """The encoding of each text, of at most as many tokens as its width; of a pair the second part is cut
        to that, after both were cut to their own limits.

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
        room = width - self._rust.num_special_tokens_to_add(True)
        queries = self._cut((text.prompt + text.text, text.parts[0]) for text in texts)
        for encoding in queries.values():
            if len(encoding) >= room:
                raise NoRoom(f"the query has {len(encoding)} tokens beside special ones", width, "query")
        whole = all(text.parts == (None, None) for text in texts)
        documents = {} if whole else self._cut((text.pair or "", text.parts[1]) for text in texts)
        if width < NO_LIMIT:
            self._rust.enable_truncation(width, strategy="only_second", direction=self._side)
        if whole:
            found: Sequence[Any] = self._rust.encode_batch_fast([(t.prompt + t.text, t.pair) for t in texts])
            return found
        return [
            self._rust.post_process(
                queries[text.prompt + text.text, text.parts[0]], documents[text.pair or "", text.parts[1]]
            )
            for text in texts
        ]

    def _cut(self, parts: Iterable[tuple[str, int | None]]) -> dict[tuple[str, int | None], Any]:
        """The encoding of each text without special tokens, cut to the number beside it."""
        once = list(dict.fromkeys(parts))
        encodings = self._rust.encode_batch_fast([text for text, _ in once], add_special_tokens=False)
        for (_, most), encoding in zip(once, encodings, strict=True):
            if most is not None:
                encoding.truncate(most, direction=self._side)
        return dict(zip(once, encodings, strict=True))


def check_room(width: int, tokenizer: Any, *, pair: bool = False) -> None:
    """Below its number of special tokens a tokenizer does not truncate at all, and at it every text is the same.

    Raises:
        NoRoom: so few tokens are allowed.
    """
    special = tokenizer.num_special_tokens_to_add(pair)
    if width <= special:
        raise NoRoom(f"the model adds {special} special tokens", width)

"""Entities of any labels, and relations between them, by GLiNER models of every architecture that its library has."""

from __future__ import annotations

import bisect
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gliner import GLiNER
from gliner.data_processing.processor import BaseBiEncoderProcessor
from tokenizers import Tokenizer

from ...batching import Model, Tokenized
from ...protocol.events import ItemError
from ...protocol.work import ExtractWork
from ..base import EngineLoadError
from ..files import model_files
from ..retrieval import loading
from . import engine
from .engine import ExtractionEngine, entity, invalid

log = logging.getLogger("sie.extract")

THRESHOLD = 0.5
SENTENCE_ENDS = frozenset((".", "!", "?", "\u3002", "\uff01", "\uff1f"))
LOADTIME = engine.LOADTIME | {"default_labels", "attn_implementation"}
RUNTIME = frozenset(("threshold", "multi_label", "merge_adjacent_entities", "precompute_labels"))


@dataclass(frozen=True)
class Settings:
    """What all texts of one forward pass share. ``prompt`` is how many tokens the labels take."""

    labels: tuple[str, ...]
    relations: tuple[str, ...]
    threshold: float
    relation_threshold: float
    flat: bool
    multi_label: bool
    merge: bool
    prompt: int


@dataclass(frozen=True)
class Window:
    """A part of a text that fits the model, and where it begins in the text (in code points)."""

    text: str
    start: int
    tokens: int
    settings: Settings


class Counter:
    """How many tokens the model makes of labels and words. What exceeds its tokenizer's limit the library cuts off."""

    def __init__(self, processor: Any) -> None:
        tokenizer = processor.transformer_tokenizer
        # truncation is a setting that changes under the library's use
        self._rust = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._rust.no_truncation()
        self._rust.no_padding()
        self._processor = processor
        self._limit = int(tokenizer.model_max_length) - self._rust.num_special_tokens_to_add(False)
        self._apart = isinstance(processor, BaseBiEncoderProcessor)

    def prompt(self, labels: Sequence[str], relations: Sequence[str]) -> int:
        """Tokens of the labels."""
        named = getattr(self._processor.config, "decoder_mode", None) != "prompt"
        ((words,), _) = self._processor.prepare_inputs(
            [[]], list(labels), relations=list(relations), add_entities=named
        )
        return sum(self.of(words))

    def of(self, words: Sequence[str]) -> list[int]:
        """Tokens of each word."""
        counts = [0] * len(words)
        # other threads run during a batch, and not during a single one
        (encoding,) = self._rust.encode_batch([list(words)], is_pretokenized=True, add_special_tokens=False)
        for word in encoding.word_ids:
            if word is not None:
                counts[word] += 1
        return counts

    def room(self, prompt: int) -> int:
        """Tokens of text that fit beside labels of ``prompt`` tokens; a model may read labels apart from the text."""
        return self._limit if self._apart else self._limit - prompt


class GlinerModel:
    """A GLiNER model as the batcher's. Rows: the window's start, its entities and its relations, or an error."""

    padded = True

    def __init__(self, model: Any, *, relations: bool) -> None:
        self._model = model
        self._relations = relations

    def estimate(self, inputs: Sequence[Window]) -> int:
        return sum(window.tokens + window.settings.prompt for window in inputs)

    def tokenize(self, inputs: Sequence[Window]) -> Sequence[Tokenized]:
        """Windows are counted when they are cut; the library makes the tokens."""
        return [
            Tokenized(window.tokens + window.settings.prompt, window, window.settings, window.tokens)
            for window in inputs
        ]

    def forward(self, batch: Sequence[Window], share: int) -> list[Any]:
        try:
            return self._infer(batch)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if self.is_out_of_memory(error):
                raise
            if len(batch) == 1:
                log.exception("GLiNER failed on a text")
                return [ItemError("inference_error", "the model failed on this text")]
            return [row for window in batch for row in self.forward([window], share)]

    def rows(self, output: list[Any], count: int) -> Sequence[Any]:
        return output

    def is_out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, torch.OutOfMemoryError | MemoryError) or "not enough memory" in str(error)

    def _infer(self, batch: Sequence[Window]) -> list[Any]:
        settings = batch[0].settings
        arguments: dict[str, Any] = {
            "flat_ner": settings.flat,
            "threshold": settings.threshold,
            "multi_label": settings.multi_label,
            "batch_size": len(batch),
        }
        if self._relations:
            arguments |= {
                "relations": list(settings.relations),
                "relation_threshold": settings.relation_threshold,
                "return_relations": bool(settings.relations),
            }
        found = self._model.inference([window.text for window in batch], list(settings.labels), **arguments)
        entities, relations = found if self._relations and settings.relations else (found, [[] for _ in batch])
        return [
            (window.start, of_window, between)
            for window, of_window, between in zip(batch, entities, relations, strict=True)
        ]


class GlinerEngine(ExtractionEngine[Settings]):
    """Zero-shot entities; relations too where the model is a joint one and ``options.relation_labels`` names some.

    A text longer than the model reads (``max_len`` words, and the tokens that the labels leave) is read in windows that
    end with a sentence where one ends.
    Options of the request, over those of the profile: ``threshold``, ``multi_label``, ``flat_ner`` (false: entities
    may overlap), ``merge_adjacent_entities``, ``relation_labels``, ``relation_threshold``.
    """

    option_names = frozenset(
        ("threshold", "multi_label", "flat_ner", "merge_adjacent_entities", "relation_labels", "relation_threshold")
    )

    def make(self) -> Model:
        self._check_options()
        return loading.loaded(self.entry.name, self._make)

    def _make(self) -> Model:
        on = loading.device()
        folder = model_files(self.profile)
        dtype = loading.precision(self.profile.compute_precision or (None if on.type == "cuda" else "float32"), on)
        model = GLiNER.from_pretrained(
            folder,
            map_location=str(on),
            dtype=None if dtype == torch.float32 else dtype,
            _attn_implementation=self.profile.loadtime.get("attn_implementation"),
        ).eval()
        self._split = model.data_processor.words_splitter
        self._counter = Counter(model.data_processor)
        self._window = int(model.config.max_len)
        self._relates = hasattr(model, "predict_relations")
        self.memory_bytes = sum(
            p.numel() * p.element_size() for p in itertools.chain(model.parameters(), model.buffers())
        )
        return GlinerModel(model, relations=self._relates)

    def _check_options(self) -> None:
        unknown = [f"loadtime.{name}" for name in self.profile.loadtime if name not in LOADTIME]
        unknown += [f"runtime.{name}" for name in self.profile.runtime if name not in RUNTIME]
        if unknown:
            message = f"GLiNER has nothing for {unknown[0]}"
            raise EngineLoadError(message, error_class="UnsupportedOption", permanent=True)

    def settings(self, work: ExtractWork) -> Settings:
        relations = self.option(work, "relation_labels", list, [])
        if not all(isinstance(label, str) and label.strip() for label in relations):
            raise invalid("options.relation_labels", "must be a list of non-blank strings")
        if relations and not self._relates:
            raise invalid("options.relation_labels", f"means nothing: model {self.entry.name!r} finds no relations")
        labels, relations = self.labels(work), list(dict.fromkeys(relations))
        prompt = self._counter.prompt(labels, relations)
        if self._counter.room(prompt) < 1:
            raise invalid("labels", f"are {prompt} tokens, which leaves model {self.entry.name!r} no room for a text")
        threshold = self.option(work, "threshold", float, THRESHOLD)
        return Settings(
            labels=tuple(labels),
            relations=tuple(relations),
            threshold=threshold,
            relation_threshold=self.option(work, "relation_threshold", float, threshold),
            flat=self.option(work, "flat_ner", bool, True),
            multi_label=self.option(work, "multi_label", bool, False),
            merge=self.option(work, "merge_adjacent_entities", bool, False),
            prompt=prompt,
        )

    def pieces(self, text: str, settings: Settings) -> Sequence[Window]:
        split = list(self._split(text))
        words = [(start, end) for _, start, end in split]
        # tokens before each word
        before = [0, *itertools.accumulate(self._counter.of([word for word, _, _ in split]))]
        room = self._counter.room(settings.prompt)
        windows = []
        first = 0
        while first < len(words):
            # a word of more tokens than there is room for is read by its first ones
            fit = max(1, bisect.bisect_right(before, before[first] + room) - 1 - first)
            last = _window_end(text, words, first, min(self._window, fit))
            # a text that fits is read as it is, spaces at its ends included
            whole = first == 0 and last == len(words)
            start, end = (0, len(text)) if whole else (words[first][0], words[last - 1][1])
            windows.append(Window(text[start:end], start, before[last] - before[first], settings))
            first = last
        return windows

    def joined(self, text: str, rows: Sequence[Any], settings: Settings) -> dict[str, Any]:
        entities: list[dict[str, Any]] = []
        relations: list[dict[str, Any]] = []
        for start, found, between in rows:
            entities += [
                entity(text, start + one["start"], start + one["end"], one["label"], float(one["score"]))
                for one in found
            ]
            relations += [
                {
                    "head": one["head"]["text"],
                    "tail": one["tail"]["text"],
                    "relation": one["relation"],
                    "score": float(one["score"]),
                }
                for one in between
            ]
        entities.sort(key=lambda one: (one["start"], one["end"]))
        return {"entities": merged(text, entities) if settings.merge else entities, "relations": relations}


def _window_end(text: str, words: Sequence[tuple[int, int]], first: int, most: int) -> int:
    """The index behind the last word of a window: at the last end of a sentence in its second half, else at its end."""
    if len(words) - first <= most:
        return len(words)
    for last in range(first + most, first + most // 2, -1):
        if text[words[last - 1][0] : words[last - 1][1]] in SENTENCE_ENDS:
            return last
    return first + most


def merged(text: str, entities: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours of one label with nothing but space between them as one entity, as sure as its least sure part."""
    done: list[dict[str, Any]] = []
    for one in entities:
        before = done[-1] if done else None
        if before and before["label"] == one["label"] and not text[before["end"] : one["start"]].strip():
            score = min(before["score"], one["score"])
            done[-1] = entity(text, before["start"], max(before["end"], one["end"]), one["label"], score)
        else:
            done.append(one)
    return done

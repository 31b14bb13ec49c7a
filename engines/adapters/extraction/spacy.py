"""Entities of a fixed set of labels, by a spaCy pipeline."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import spacy

from ...batching import Model, Tokenized
from ...protocol.events import ItemError
from ...protocol.work import ExtractWork
from ..base import EngineLoadError
from ..files import model_files
from .engine import LOADTIME, ExtractionEngine, entity, invalid

log = logging.getLogger("sie.extract")

UNUSED = ("tagger", "parser", "senter", "morphologizer", "attribute_ruler", "lemmatizer", "textcat")
"""Components that entities do not come from: left out, they cost nothing."""

ENTITY_COMPONENTS = ("ner", "entity_ruler", "span_ruler")
CHARACTERS_PER_TOKEN = 5

Span = tuple[int, int, str]


@dataclass(frozen=True)
class Settings:
    """``labels``: those wanted, ``None`` for all."""

    labels: frozenset[str] | None


class SpacyModel:
    """A pipeline as the batcher's model. Rows: the spans of a text, or why it could not be read."""

    padded = False

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def estimate(self, inputs: Sequence[str]) -> int:
        return sum(len(text) // CHARACTERS_PER_TOKEN + 1 for text in inputs)

    def tokenize(self, inputs: Sequence[str]) -> Sequence[Tokenized]:
        # the tokens of spaCy are words; they are made in its pipeline again, which costs little beside the rest
        counts = [len(self._pipeline.make_doc(text)) for text in inputs]
        return [Tokenized(max(1, count), text, tokens=count) for text, count in zip(inputs, counts, strict=True)]

    def forward(self, batch: Sequence[str], share: int) -> list[list[Span] | ItemError]:
        try:
            return [_spans(doc) for doc in self._pipeline.pipe(batch, batch_size=len(batch))]
        except MemoryError:
            raise
        except Exception:
            if len(batch) == 1:
                log.exception("spaCy failed on a text")
                return [ItemError("inference_error", "the model failed on this text")]
            # one text is at fault: the others must not suffer
            return [row for text in batch for row in self.forward([text], share)]

    def rows(self, output: list[list[Span] | ItemError], count: int) -> Sequence[Any]:
        return output

    def is_out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, MemoryError)


class SpacyEngine(ExtractionEngine[Settings]):
    """``labels`` filter the entities, whatever their case; a label that the pipeline cannot give is refused. spaCy has
    no scores: each is 1.0."""

    def make(self) -> Model:
        for name in (*self.profile.loadtime, *self.profile.runtime):
            if name not in LOADTIME:
                raise EngineLoadError(f"spaCy has nothing for {name}", error_class="UnsupportedOption", permanent=True)
        try:
            pipeline = spacy.load(model_files(self.profile), exclude=list(UNUSED))
        except (OSError, ValueError, ImportError) as error:
            message = f"{self.entry.name}: {error}"
            raise EngineLoadError(message, error_class=type(error).__name__, permanent=True) from error
        found = [name for name in ENTITY_COMPONENTS if name in pipeline.pipe_names]
        if not found:
            raise EngineLoadError(f"{self.entry.name}: finds no entities", error_class="NoEntities", permanent=True)
        self._known = {label.upper(): label for name in found for label in pipeline.get_pipe(name).labels}
        self._longest = pipeline.max_length
        self.memory_bytes = len(pipeline.vocab.vectors.data) + _weights(pipeline)
        return SpacyModel(pipeline)

    def settings(self, work: ExtractWork) -> Settings:
        if not work.labels:
            return Settings(None)
        for label in work.labels:
            if label.upper() not in self._known:
                known = ", ".join(sorted(self._known.values()))
                raise invalid("labels", f"{label!r} is no label of model {self.entry.name!r}; it gives {known}")
        return Settings(frozenset(self._known[label.upper()] for label in work.labels))

    def pieces(self, text: str, settings: Settings) -> Sequence[str] | ItemError:
        if len(text) > self._longest:
            return ItemError("INVALID_INPUT", f"the text has {len(text)} characters, more than {self._longest}")
        return [text] if text.strip() else []

    def joined(self, text: str, rows: Sequence[list[Span]], settings: Settings) -> dict[str, Any]:
        wanted = settings.labels
        spans = [span for row in rows for span in row if wanted is None or span[2] in wanted]
        return {"entities": [entity(text, start, end, label) for start, end, label in spans]}


def _spans(doc: Any) -> list[Span]:
    # spaCy's characters are code points
    return [(span.start_char, span.end_char, span.label_) for span in doc.ents]


def _weights(pipeline: Any) -> int:
    nodes = {
        id(node): node
        for _, component in pipeline.pipeline
        for node in (component.model.walk() if hasattr(component, "model") and component.model else ())
    }
    return sum(
        int(node.get_param(name).nbytes) for node in nodes.values() for name in node.param_names if node.has_param(name)
    )

"""Zero-shot classification: how far a text entails "This example is {label}.", by a sequence-pair classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from ...batching import Model, Tokenized
from ...protocol.work import ExtractWork
from ..base import EngineLoadError
from ..files import model_files
from ..retrieval import loading
from . import engine
from .engine import ExtractionEngine, invalid

TEMPLATE = "This example is {}."
NO_LIMIT = 100_000
"""Tokenizers without a limit of their own have one of 10^30."""

CHARACTERS_PER_TOKEN = 4
LONGEST_TOKEN = 64
MAX_PAIRS = 32_768
"""Labels times items of one request."""
LOADTIME = engine.LOADTIME | {
    "default_labels",
    "attn_implementation",
    "multi_label",
    "max_seq_length",
    "trust_remote_code",
    "config_kwargs",
    "score_threshold",
}
RUNTIME = frozenset(("hypothesis_template", "multi_label", "threshold", "score_threshold", "max_seq_length"))


@dataclass(frozen=True)
class Settings:
    labels: tuple[str, ...]
    template: str
    multi_label: bool
    threshold: float


@dataclass(frozen=True)
class Pair:
    """A premise and what is to follow from it."""

    text: str
    hypothesis: str


class NliModel:
    """The classifier as the batcher's model. Rows: the logits of contradiction and entailment, float32 (2,)."""

    padded = True

    def __init__(self, model: Any, tokenizer: Any, columns: tuple[int, int], max_length: int, on: torch.device) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._columns = list(columns)
        self._max_length = max_length
        self._device = on

    def estimate(self, inputs: Sequence[Pair]) -> int:
        lengths = (len(pair.text) + len(pair.hypothesis) for pair in inputs)
        return sum(min(self._max_length, length // CHARACTERS_PER_TOKEN + 4) for length in lengths)

    def tokenize(self, inputs: Sequence[Pair]) -> Sequence[Tokenized]:
        most = self._max_length * LONGEST_TOKEN  # what is beyond is cut off anyway, label for label
        encoded = self._tokenizer(
            [pair.text[:most] for pair in inputs],
            [pair.hypothesis for pair in inputs],
            truncation="only_first",  # the hypothesis stays whole
            max_length=self._max_length,
        )
        rows = [
            {name: encoded[name][i] for name in self._tokenizer.model_input_names if name in encoded}
            for i in range(len(inputs))
        ]
        return [Tokenized(len(row["input_ids"]), row, tokens=len(row["input_ids"])) for row in rows]

    @torch.inference_mode()
    def forward(self, batch: Sequence[dict[str, Any]], share: int) -> Any:
        features = self._tokenizer.pad(list(batch), return_tensors="pt").to(self._device)
        return self._model(**features).logits[:, self._columns].float().cpu().numpy()

    def rows(self, output: Any, count: int) -> Sequence[Any]:
        return list(output)

    def is_out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, torch.OutOfMemoryError | MemoryError) or "not enough memory" in str(error)


class NliEngine(ExtractionEngine[Settings]):
    """Scores of labels for each text, highest first. They add up to one, unless ``multi_label`` or a lone label makes
    each a question of its own (entailment against contradiction). Source of the arithmetic: transformers'
    ``ZeroShotClassificationPipeline``.

    Options of the request, over those of the profile: ``hypothesis_template`` (with one ``{}``), ``multi_label``,
    ``threshold`` (labels that score less are left out).
    """

    option_names = frozenset(("hypothesis_template", "multi_label", "threshold"))

    def make(self) -> Model:
        unknown = [f"loadtime.{name}" for name in self.profile.loadtime if name not in LOADTIME]
        unknown += [f"runtime.{name}" for name in self.profile.runtime if name not in RUNTIME]
        if unknown:
            message = f"zero-shot classification has nothing for {unknown[0]}"
            raise EngineLoadError(message, error_class="UnsupportedOption", permanent=True)
        return loading.loaded(self.entry.name, self._make)

    def _make(self) -> Model:
        on = loading.device()
        folder = model_files(self.profile)
        given = loading.library_arguments(
            self.entry, self.profile, loading.precision(self.profile.compute_precision, on), on
        )
        shared = {"revision": given["revision"], "trust_remote_code": given["trust_remote_code"]}
        tokenizer = AutoTokenizer.from_pretrained(folder, **shared)
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, **shared, **given["model_kwargs"], **given["config_kwargs"]
        )
        model.to(on).eval()
        self.memory_bytes = sum(p.numel() * p.element_size() for p in (*model.parameters(), *model.buffers()))
        return NliModel(model, tokenizer, _columns(model.config, self.entry.name), self._max_length(tokenizer), on)

    def settings(self, work: ExtractWork) -> Settings:
        labels = tuple(self.labels(work))
        if len(labels) * len(work.items) > MAX_PAIRS:
            asked = f"{len(labels)} labels for {len(work.items)} items are {len(labels) * len(work.items)} questions"
            raise invalid("labels", f"{asked}; at most {MAX_PAIRS} are taken at once")
        template = self.option(work, "hypothesis_template", str, TEMPLATE)
        if template.count("{}") != 1 or template.replace("{}", "").count("{"):
            raise invalid("options.hypothesis_template", "must have one {} where the label goes")
        threshold = self.profile.option("score_threshold", 0.0)
        return Settings(
            labels,
            template,
            self.option(work, "multi_label", bool, False),
            self.option(work, "threshold", float, threshold),
        )

    def pieces(self, text: str, settings: Settings) -> Sequence[Pair]:
        return [Pair(text, settings.template.replace("{}", label)) for label in settings.labels]

    def joined(self, text: str, rows: Sequence[Any], settings: Settings) -> dict[str, Any]:
        logits = np.array(rows, dtype=np.float64)
        alone = settings.multi_label or len(settings.labels) == 1
        scores = _softmax(logits)[:, 1] if alone else _softmax(logits[:, 1])
        found = [
            {"label": label, "score": float(score)}
            for label, score in zip(settings.labels, scores, strict=True)
            if score >= settings.threshold
        ]
        return {"classifications": sorted(found, key=lambda one: -one["score"])}

    def _max_length(self, tokenizer: Any) -> int:
        limits = [tokenizer.model_max_length, self.entry.max_sequence_length, NO_LIMIT]
        limits += [options.get("max_seq_length") for options in (self.profile.runtime, self.profile.loadtime)]
        return min(int(limit) for limit in limits if limit)


def _columns(config: Any, name: str) -> tuple[int, int]:
    """The outputs for contradiction and entailment.

    Raises:
        EngineLoadError: the model was not trained for entailment.
    """
    labels = {str(label).lower(): int(column) for column, label in config.id2label.items()}
    entailment = next((column for label, column in labels.items() if label.startswith("entail")), None)
    if entailment is None or config.num_labels < 2:
        known = ", ".join(map(str, config.id2label.values()))
        message = f"{name}: none of the model's labels ({known}) is entailment, so it cannot classify by it"
        raise EngineLoadError(message, error_class="NoEntailment", permanent=True)
    contradiction = next((column for label, column in labels.items() if label.startswith("contra")), None)
    if contradiction is None:
        # as in the library: the first column that is not entailment, or the last
        contradiction = config.num_labels - 1 if entailment == 0 else 0
    return contradiction, entailment


def _softmax(logits: Any) -> Any:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)

"""Scores of query and document read together, by a ``CrossEncoder``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer

from ...protocol.events import ScoreOutput
from ...protocol.work import ScoreWork
from ..base import EngineLoadError
from ..files import model_files
from . import loading, options
from .engine import RetrievalEngine
from .pictures import Features, Picture
from .runner import Runner
from .texts import Text, paired

BINARY = 2


class CrossRunner(Runner):
    """Rows: the logit, a float; of a two-label model the log-odds of its second label."""

    def results(self, features: Features, wants: frozenset[str]) -> Any:
        scores = features["scores"].double()
        return (scores[:, 1] - scores[:, 0] if scores.shape[-1] == BINARY else scores.reshape(-1)).cpu()

    def split(self, output: Any, count: int) -> Sequence[Any]:
        scores: list[float] = output.tolist()
        return scores


class CrossEncoderEngine(RetrievalEngine):
    """Score pairs. Logits are raw (no activation) and float32 or wider: the classification head runs in float32."""

    def make(self) -> Runner:
        on = loading.device()
        dtype = loading.precision(self.profile.compute_precision, on)
        arguments = loading.library_arguments(self.entry, self.profile, dtype, on)
        model = CrossEncoder(model_files(self.profile), **arguments)
        if model.num_labels > BINARY:
            raise EngineLoadError(
                f"{self.entry.name}: {model.num_labels} labels are a classification, not a score",
                error_class="UnsupportedModel",
                permanent=True,
            )
        model.set_keep_in_fp32_modules(head_layers(model))
        runner = CrossRunner(model, self.max_length())
        for limit in ("query_max_length", "doc_max_length"):
            if self.option(limit) and not runner.direct:
                raise options.refusal(self.entry.name, f"{limit} where the library itself makes tokens of the pairs")
        return runner

    def facts(self, runner: Runner) -> dict[str, list[Any]]:
        return {**super().facts(runner), "score_mode": ["logit"]}

    def score_inputs(
        self, query: str | Picture, documents: Sequence[str | Picture], work: ScoreWork
    ) -> list[Text | Picture]:
        asked, *texts = cast(list[str], [query, *documents])  # its runner sees no images
        first = self.templates.apply(asked, "query", work.instruction)
        second = (self.templates.apply(text, "document", None) for text in texts)
        return [paired(first, document, work.max_sequence_length) for document in second]

    def scores(self, rows: Sequence[Any]) -> ScoreOutput:
        return ScoreOutput(scores=list(rows), kind="logit")


def head_layers(model: Any) -> list[str]:
    """Names of the plain linear layers of the first module that lie outside its backbone."""
    first = model[0]
    if not isinstance(first, Transformer):
        return []
    backbone = getattr(first.model, first.model.base_model_prefix, None)
    inside = set(backbone.modules()) if isinstance(backbone, torch.nn.Module) else set(first.model.modules())
    return [name for name, layer in model.named_modules() if type(layer) is torch.nn.Linear and layer not in inside]

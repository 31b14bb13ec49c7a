"""Late interaction: one vector per token, of a ``MultiVectorEncoder`` (ColBERT and its kin)."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

from ...protocol.events import EncodeOutput, ScoreOutput
from ...protocol.work import EncodeWork
from ..files import model_files
from . import loading
from .engine import RetrievalEngine
from .pictures import Features
from .quantize import quantized
from .runner import Runner, to_numpy


class MultiVectorRunner(Runner):
    """Rows: float32 (tokens, dims), the tokens that the model scores (its mask, expansion and skip list applied)."""

    def __init__(self, model: Any, max_length: int | None, *, normalize: bool) -> None:
        super().__init__(model, max_length)
        self._normalize = normalize

    def results(self, features: Features, wants: frozenset[str]) -> Any:
        vectors = features["token_embeddings"].float()
        if self._normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=-1)
        return to_numpy(vectors), features["attention_mask"].bool().cpu().numpy()

    def split(self, output: Any, count: int) -> Sequence[Any]:
        return [vectors[mask] for vectors, mask in zip(*output, strict=True)]


class MultiVectorEncoderEngine(RetrievalEngine):
    """Encode to token vectors; score by MaxSim, or by the mean form of it where the checkpoint says so."""

    outputs: ClassVar[tuple[str, ...]] = ("multivector",)
    own_options: ClassVar[frozenset[str]] = frozenset(("normalize",))

    def make(self) -> Runner:
        on = loading.device()
        dtype = loading.precision(self.profile.compute_precision, on)
        arguments = loading.library_arguments(self.entry, self.profile, dtype, on)
        model = MultiVectorEncoder(model_files(self.profile), **arguments)
        return MultiVectorRunner(model, self.max_length(), normalize=bool(self.option("normalize")))

    def facts(self, runner: Runner) -> dict[str, list[Any]]:
        masks = [module for module in runner.model if isinstance(module, MultiVectorMask)]
        skips = any(set(string.punctuation) <= set(m.skiplist_words) and "document" in m.skiplist_tasks for m in masks)
        return {
            **super().facts(runner),
            "score_mode": ["maxsim"],
            "query_expansion": [getattr(runner.model[0], "query_expansion", None) is not None],
            "doc_punctuation_skiplist": [skips],
        }

    def output(self, rows: Sequence[Any], work: EncodeWork) -> EncodeOutput:
        return EncodeOutput(
            multivector=[None if row is None else quantized(row, work.output_dtype, constant=0) for row in rows],
            token_dims=self.entry.dims["multivector"],
        )

    def scores(self, rows: Sequence[Any]) -> ScoreOutput:
        query, *documents = (torch.from_numpy(row) for row in rows)
        # a document of which the mask leaves nothing has nothing to say
        scored = [i for i, document in enumerate(documents) if len(document)]
        scores = [0.0] * len(documents)
        if scored and len(query):
            assert self.runner is not None
            found = self.runner.model.similarity([query], [documents[i] for i in scored])[0].tolist()
            for index, score in zip(scored, found, strict=True):
                scores[index] = score
        return ScoreOutput(scores=scores, kind="maxsim")

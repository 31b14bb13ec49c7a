"""Sparse vectors of a ``SparseEncoder`` (SPLADE and its kin)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling
from sentence_transformers.util import select_max_active_dims

from ...protocol.events import EncodeOutput, ScoreOutput, SparseVector
from ...protocol.work import EncodeWork
from ..files import model_files
from . import loading
from .engine import RetrievalEngine
from .pictures import Features
from .quantize import tensor
from .runner import Runner, to_numpy


class SparseRunner(Runner):
    """Rows: (indices int32 ascending, values float32) of the non-zero entries.

    SPLADE's max pooling is done here, on the logits as they come: the maximum commutes with the rising
    ``log1p(relu(x))``, so that runs afterwards, on one row per text and in float32, instead of on every token.
    """

    widen = False

    def __init__(self, model: Any, max_length: int | None) -> None:
        super().__init__(model, max_length)
        modules = list(model)
        self._pooling = modules[1] if len(modules) == 2 and isinstance(modules[1], SpladePooling) else None
        strategy = self._pooling.pooling_strategy if self._pooling is not None else None
        self._max_first = self.direct and not self.left and strategy == "max"

    def run_modules(self, features: Features, arguments: dict[str, Any]) -> Features:
        if not self._max_first:
            return super().run_modules(features, arguments)
        assert self._pooling is not None
        out: Features = self.model[0](features)
        lengths = features["attention_mask"].sum(dim=1).tolist()
        peaks = torch.stack([row[:n].amax(dim=0) for row, n in zip(out["token_embeddings"], lengths, strict=True)])
        values = peaks.float().relu_().log1p_()
        if self._pooling.activation_function == "log1p_relu":
            values = values.log1p_()
        return {"sentence_embedding": values}

    def results(self, features: Features, wants: frozenset[str]) -> Any:
        vectors = features["sentence_embedding"]
        if self.model.max_active_dims is not None:
            vectors = select_max_active_dims(vectors, max_active_dims=self.model.max_active_dims)
        return to_numpy(vectors.to_dense() if vectors.is_sparse else vectors)

    def split(self, output: Any, count: int) -> Sequence[Any]:
        rows = []
        for vector in output:
            (indices,) = np.nonzero(vector)
            rows.append((indices.astype(np.int32), vector[indices]))
        return rows


class SparseEncoderEngine(RetrievalEngine):
    """Encode to sparse vectors; score by their cosine."""

    outputs: ClassVar[tuple[str, ...]] = ("sparse",)

    def make(self) -> Runner:
        on = loading.device()
        dtype = loading.precision(self.profile.compute_precision, on)
        arguments = loading.library_arguments(self.entry, self.profile, dtype, on)
        return SparseRunner(SparseEncoder(model_files(self.profile), **arguments), self.max_length())

    def facts(self, runner: Runner) -> dict[str, list[Any]]:
        return {**super().facts(runner), "score_mode": ["similarity"]}

    def output(self, rows: Sequence[Any], work: EncodeWork) -> EncodeOutput:
        """Values are float16 when asked for and float32 with any other dtype (contract F.3)."""
        dtype = np.float16 if work.output_dtype == "float16" else np.float32
        dims = self.entry.dims["sparse"]
        return EncodeOutput(
            sparse=[
                None if row is None else SparseVector(dims, tensor(row[0]), tensor(row[1].astype(dtype)))
                for row in rows
            ]
        )

    def scores(self, rows: Sequence[Any]) -> ScoreOutput:
        query = np.zeros(self.entry.dims["sparse"])
        query[rows[0][0]] = rows[0][1]
        norm = float(np.linalg.norm(query))
        scores = []
        for indices, values in rows[1:]:
            both = norm * float(np.linalg.norm(values.astype(np.float64)))
            scores.append(float(query[indices] @ values) / both if both else 0.0)
        return ScoreOutput(scores=scores, kind="similarity")

"""Dense vectors, and token vectors, of a ``SentenceTransformer``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from ...protocol.events import EncodeOutput, ScoreOutput
from ...protocol.work import EncodeWork
from . import loading
from .engine import RetrievalEngine, dense_output
from .quantize import quantized
from .runner import Features, Runner, to_numpy


class DenseRunner(Runner):
    """Rows: a float32 vector, with ``multivector`` wanted a tuple of vector and (tokens, dims) unit token vectors."""

    def __init__(self, model: Any, max_length: int | None, *, normalize: bool) -> None:
        super().__init__(model, max_length)
        self._normalize = normalize

    def results(self, features: Features, wants: frozenset[str]) -> Any:
        vectors = features["sentence_embedding"].float()
        if self._normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=-1)
        if "multivector" not in wants:
            return to_numpy(vectors), None, None
        tokens = torch.nn.functional.normalize(features["token_embeddings"].float(), dim=-1)
        return to_numpy(vectors), to_numpy(tokens), features["attention_mask"].bool().cpu().numpy()

    def rows(self, output: Any, count: int) -> Sequence[Any]:
        vectors, tokens, masks = output
        if tokens is None:
            return list(vectors)
        return [(vector, rows[mask]) for vector, rows, mask in zip(vectors, tokens, masks, strict=True)]


class SentenceTransformerEngine(RetrievalEngine):
    """Encode to dense vectors (and token vectors); score by the cosine of the dense vectors."""

    outputs: ClassVar[tuple[str, ...]] = ("dense", "multivector")

    def make(self) -> Runner:
        on = loading.device()
        dtype = loading.precision(self.profile.compute_precision, on)
        arguments = loading.library_arguments(self.entry, self.profile, dtype, on)
        model = SentenceTransformer(loading.model_path(self.profile), **arguments)
        normalize = self.option("normalize")
        if normalize is False:
            for name, module in list(model.named_children()):
                if isinstance(module, Normalize):
                    del model[int(name)]
        return DenseRunner(model, self.max_length(), normalize=bool(normalize))

    def output(self, rows: Sequence[Any], work: EncodeWork) -> EncodeOutput:
        both = "multivector" in work.output_types
        output = EncodeOutput()
        if "dense" in work.output_types:
            vectors = [row[0] if both and row is not None else row for row in rows]
            output = dense_output(vectors, self.entry.dims["dense"], work)
        if both:
            output.multivector = [
                None if row is None else quantized(row[1], work.output_dtype, constant=0) for row in rows
            ]
            output.token_dims = self.entry.dims["multivector"]
        return output

    def scores(self, rows: Sequence[Any]) -> ScoreOutput:
        matrix = np.stack(rows).astype(np.float64)
        matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
        return ScoreOutput(scores=(matrix[1:] @ matrix[0]).tolist(), kind="similarity")

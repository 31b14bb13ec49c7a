"""Dense vectors, and token vectors, of a ``SentenceTransformer``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling

from ...protocol.events import EncodeOutput, ScoreOutput
from ...protocol.work import EncodeWork
from ..base import EngineLoadError
from ..files import model_files
from . import loading
from .engine import RetrievalEngine
from .outputs import cosines, dense_output
from .pictures import Features
from .quantize import quantized
from .runner import Runner, to_numpy

POOLING_NAMES = {"last": "lasttoken", "last_token": "lasttoken"}


class DenseRunner(Runner):
    """Rows: a float32 vector, with ``multivector`` wanted a tuple of vector and (tokens, dims) unit token vectors."""

    takes_images = True

    def __init__(self, model: Any, max_length: int | None, *, dims: int | None, normalize: bool) -> None:
        super().__init__(model, max_length)
        self._dims = dims
        self._normalize = normalize
        self.unit = normalize or any(isinstance(module, Normalize) for module in model)
        """Whether vectors have the length one."""

    def results(self, features: Features, wants: frozenset[str]) -> Any:
        vectors = features["sentence_embedding"].float()[:, : self._dims]
        if self._normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=-1)
        if "multivector" not in wants:
            return to_numpy(vectors), None, None
        tokens = torch.nn.functional.normalize(features["token_embeddings"].float(), dim=-1)
        return to_numpy(vectors), to_numpy(tokens), features["attention_mask"].bool().cpu().numpy()

    def split(self, output: Any, count: int) -> Sequence[Any]:
        vectors, tokens, masks = output
        if tokens is None:
            return list(vectors)
        return [(vector, rows[mask]) for vector, rows, mask in zip(vectors, tokens, masks, strict=True)]


class SentenceTransformerEngine(RetrievalEngine):
    """Encode to dense vectors (and token vectors); score by the cosine of the dense vectors."""

    outputs: ClassVar[tuple[str, ...]] = ("dense", "multivector")
    own_options: ClassVar[frozenset[str]] = frozenset(("normalize", "pooling"))

    def make(self) -> Runner:
        on = loading.device()
        dtype = loading.precision(self.profile.compute_precision, on)
        arguments = loading.library_arguments(self.entry, self.profile, dtype, on)
        model = SentenceTransformer(model_files(self.profile), **arguments)
        self._set_pooling(model)
        normalize = self.option("normalize")
        if normalize is False:
            for name, module in list(model.named_children()):
                if isinstance(module, Normalize):
                    del model[int(name)]
        dims = self._dims(model)
        if dims is not None:
            normalize = normalize or any(isinstance(module, Normalize) for module in model)
        return DenseRunner(model, self.max_length(), dims=dims, normalize=bool(normalize))

    def facts(self, runner: Runner) -> dict[str, list[Any]]:
        assert isinstance(runner, DenseRunner)
        # of vectors of one length both order alike
        similarities = ["cosine", "dot"] if runner.unit else ["cosine"]
        return {
            **super().facts(runner),
            "score_mode": ["similarity"],
            "output_similarity": [{"dense": similarity} for similarity in similarities],
        }

    def _set_pooling(self, model: SentenceTransformer) -> None:
        """The profile's pooling goes before the checkpoint's (a plain transformer has none, and gets the mean)."""
        wanted = self.option("pooling")
        poolings = [module for module in model if isinstance(module, Pooling)]
        if wanted is None or not poolings:
            return
        mode = POOLING_NAMES.get(wanted, wanted)
        if mode not in Pooling.POOLING_MODES:
            raise EngineLoadError(f"unknown pooling {wanted!r}", error_class="InvalidConfig", permanent=True)
        poolings[0].pooling_mode = mode

    def _dims(self, model: SentenceTransformer) -> int | None:
        """To how many dimensions vectors are cut: ``None`` where the entry's width is the model's own."""
        own, wanted = model.get_embedding_dimension(), self.entry.dims.get("dense")
        if wanted is None or own is None or wanted == own:
            return None
        if wanted > own:
            message = f"{self.entry.name}: the entry says {wanted} dimensions, the model has {own}"
            raise EngineLoadError(message, error_class="InvalidConfig", permanent=True)
        return wanted

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
        return cosines(rows)

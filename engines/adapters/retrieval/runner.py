"""A sentence-transformers model as a ``batching.Model``: tokenise, pad, forward, split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.base.modules import Router, Transformer

from ...batching import Tokenized
from .loading import cores
from .texts import Text

Features = dict[str, Any]

NO_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of one input with their segment ids, and the ``Text`` they came from."""

    ids: list[int]
    type_ids: list[int]
    text: Text


class Runner:
    """Common part of the four kinds of models; a subclass reads its results out of the features.

    Where the first module is a plain text transformer, inputs are tokenised here, in one call over many requests,
    and go through the model's own modules. Anything else (chat templates, routers, static embeddings, images) goes
    through the library's ``preprocess`` in the forward stage.
    """

    padded = True

    def __init__(self, model: Any, max_length: int | None) -> None:
        self.model = model.eval()
        self.device: torch.device = model.device
        self.max_length = min(max_length or NO_LIMIT, model.get_max_seq_length() or NO_LIMIT)
        if self.max_length < NO_LIMIT:
            model.max_seq_length = self.max_length
        self._cores = cores()
        self._threads = 0
        self.direct = self._is_direct()
        if self.direct:
            self._tokenizer = _private_tokenizer(model.tokenizer, self.max_length)
            self._pad_id = model.tokenizer.pad_token_id or 0
            self._left = model.tokenizer.padding_side == "left"
            self._names = frozenset(model.tokenizer.model_input_names)
        if isinstance(model[0], Transformer):
            model[0].register_forward_hook(_widen)
        for module in list(model)[1:]:
            module.float()

    def estimate(self, inputs: Sequence[Text]) -> int:
        """About four bytes of English to a token, and two special tokens."""
        return sum(min(self.max_length, (len(i.text) + len(i.prompt) + len(i.pair or "")) // 4 + 2) for i in inputs)

    def tokenize(self, inputs: Sequence[Text]) -> list[Tokenized]:
        if not self.direct:
            return [Tokenized(self.estimate([i]), i, (i.prompt, i.task, i.wants), self._count(i)) for i in inputs]
        encodings = self._tokenizer.encode_batch_fast([i.prompt + i.text for i in inputs])
        return [
            Tokenized(len(encoding), Encoded(encoding.ids, encoding.type_ids, i), (i.task, i.wants), len(encoding))
            for i, encoding in zip(inputs, encodings, strict=True)
        ]

    @torch.inference_mode()
    def forward(self, batch: Sequence[Any], share: int) -> Any:
        self._use_threads(max(1, self._cores // share))
        text: Text = batch[0].text if self.direct else batch[0]
        features = self._padded(batch) if self.direct else self._preprocessed(batch)
        features = {k: v.to(self.device) if isinstance(v, torch.Tensor) else v for k, v in features.items()}
        out = self.model(features, **({"task": text.task} if text.task else {}))
        return self.results(out, text.wants)

    def results(self, features: Features, wants: frozenset[str]) -> Any:
        """What ``rows`` needs of the model's output, moved to the CPU. Runs in the forward stage."""
        raise NotImplementedError

    def rows(self, output: Any, count: int) -> Sequence[Any]:
        raise NotImplementedError

    def is_out_of_memory(self, error: Exception) -> bool:
        if not isinstance(error, torch.OutOfMemoryError | MemoryError):
            # the CPU allocator has no class of its own
            if not (isinstance(error, RuntimeError) and "not enough memory" in str(error)):
                return False
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return True

    def _is_direct(self) -> bool:
        first = self.model[0]
        if not isinstance(first, Transformer) or any(isinstance(module, Router) for module in self.model):
            return False
        return (
            "message" not in first.modality_config
            and first.modality_config.get("text", {}).get("method") == "forward"
            and first.query_expansion is None
            and first.query_length is None
            and first.document_length is None
            and not first.processing_kwargs
            and not getattr(first, "do_lower_case", False)
            and all(getattr(module, "include_prompt", True) for module in self.model)
            and getattr(self.model.tokenizer, "is_fast", False)
        )

    def _count(self, text: Text) -> int:
        """Tokens of an input that the library will tokenise itself."""
        tokenizer = self.model.tokenizer
        if tokenizer is None or not callable(tokenizer):
            return self.estimate([text])
        return min(self.max_length, len(tokenizer(text.prompt + text.text, truncation=False)["input_ids"]))

    def _preprocessed(self, batch: Sequence[Text]) -> Features:
        first = batch[0]
        arguments: dict[str, Any] = {"task": first.task} if first.task else {}
        features: Features = self.model.preprocess([t.text for t in batch], prompt=first.prompt or None, **arguments)
        return features

    def _padded(self, batch: Sequence[Encoded]) -> Features:
        width = max(len(encoded.ids) for encoded in batch)
        ids = np.full((len(batch), width), self._pad_id, dtype=np.int64)
        mask = np.zeros_like(ids)
        types = np.zeros_like(ids)
        for row, encoded in enumerate(batch):
            part = slice(width - len(encoded.ids), width) if self._left else slice(0, len(encoded.ids))
            ids[row, part] = encoded.ids
            types[row, part] = encoded.type_ids
            mask[row, part] = 1
        features: Features = {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask),
            "modality": "text",
        }
        if "token_type_ids" in self._names:
            features["token_type_ids"] = torch.from_numpy(types)
        return features

    def _use_threads(self, count: int) -> None:
        # counted per calling thread by OpenMP, so parallel forward passes don't disturb each other
        if self.device.type == "cpu":
            torch.set_num_threads(count)


def to_numpy(values: torch.Tensor) -> NDArray[np.float32]:
    """A float32 copy on the CPU."""
    array: NDArray[np.float32] = values.float().cpu().numpy()
    return array


def _private_tokenizer(tokenizer: Any, max_length: int) -> Any:
    """A copy of the Rust tokenizer with its own truncation: the original's settings change under use."""
    from tokenizers import Tokenizer

    private = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    private.no_padding()
    if max_length < NO_LIMIT:
        private.enable_truncation(max_length, direction=tokenizer.truncation_side)
    else:
        private.no_truncation()
    return private


def _widen(_module: Any, _args: Any, features: Features) -> Features:
    """After a half-precision transformer, pooling and what follows are done in float32."""
    for name in ("token_embeddings", "sentence_embedding", "scores"):
        value = features.get(name)
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float32:
            features[name] = value.float()
    return features

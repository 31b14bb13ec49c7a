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
from . import lean
from .loading import cores
from .pictures import Features, Picture, Pictures, alike, joined, patches
from .texts import Text
from .tokens import NO_LIMIT, Tokens, check_room

TOKENS_PER_CORE = 128


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of one input with their segment ids, and the ``Text`` they came from."""

    ids: list[int]
    type_ids: list[int]
    text: Text


class Rows(list[Any]):
    """Rows that are made already, or an ``ItemError`` in the place of one."""


class Runner:
    """Common part of the four kinds of models; a subclass reads its results out of the features.

    Where the first module is a plain text transformer, inputs are tokenised here, in one call over many requests,
    and go through the model's own modules. Anything else (chat templates, routers, static embeddings) goes through the
    library's ``preprocess`` in the forward stage, and so do images, a row or an ``ItemError`` each.
    """

    padded = True
    takes_images = False
    widen = True
    """Whether the transformer's output is made float32 before the modules after it."""

    def __init__(self, model: Any, max_length: int | None) -> None:
        self.model = model.eval()
        self.device: torch.device = model.device
        self.max_length = min(max_length or NO_LIMIT, model.get_max_seq_length() or NO_LIMIT)
        if self.max_length < NO_LIMIT:
            model.max_seq_length = self.max_length
        self._cores = cores()
        modalities = getattr(model[0], "modality_config", {})
        self._only_text = set(modalities) <= {"text"}
        self.sees = self.takes_images and "image" in modalities and "message" not in modalities
        self.pictures = Pictures(self.picture)
        self._patches = patches(model)
        self._dtype: torch.dtype = next((p.dtype for p in model.parameters()), torch.float32)
        self.direct = self._can_be_direct()
        if self.direct:
            self._tokens = Tokens(model.tokenizer)
            self._pad_id = model.tokenizer.pad_token_id or 0
            self.left = model.tokenizer.padding_side == "left"
            self._names = frozenset(model.tokenizer.model_input_names)
        if self.widen and isinstance(model[0], Transformer):
            model[0].register_forward_hook(_widen)
        for module in list(model)[1:]:
            module.float()
        if self.device.type == "cpu" and isinstance(model[0], Transformer):
            lean.install(model[0])

    def picture(self, image: Any) -> Features:
        """The library's features of one image. Runs on any thread."""
        features: Features = self.model.preprocess([image])
        return features

    def estimate(self, inputs: Sequence[Text | Picture]) -> int:
        """About four bytes of English to a token, and two special tokens; an image is its patches, or what its bytes
        are worth."""
        return sum(
            max(self._patches, one.waiting()) if isinstance(one, Picture) else self._guess(one) for one in inputs
        )

    def _guess(self, text: Text) -> int:
        return min(self.max_length, (len(text.text) + len(text.prompt) + len(text.pair or "")) // 4 + 2)

    def tokenize(self, inputs: Sequence[Text | Picture]) -> list[Tokenized]:
        """Raises ``NoRoom`` for an input whose special tokens, or the first part of a pair, fill the limit."""
        done: list[Any] = [None] * len(inputs)
        texts: dict[int, Text] = {}
        for index, one in enumerate(inputs):
            if isinstance(one, Picture):
                done[index] = Tokenized(self._patches, one, ("picture", one.wants), tokens=0)
            elif self._is_direct(one):
                texts[index] = one
            else:
                done[index] = self._measured(one)
        if not texts:
            return done
        encodings = self._tokens.encode(list(texts.values()), [self._width(text) for text in texts.values()])
        for (index, text), encoding in zip(texts.items(), encodings, strict=True):
            encoded = Encoded(encoding.ids, encoding.type_ids, text)
            done[index] = Tokenized(len(encoding), encoded, (True, text.task, text.wants), len(encoding))
        return done

    def _measured(self, text: Text) -> Tokenized:
        """An input that the library tokenises in the forward stage; the count is without its own templates."""
        tokenizer = self.model.tokenizer
        if not callable(tokenizer):
            length = self._guess(text)
        else:
            check_room(self._width(text), tokenizer, pair=text.pair is not None)
            ids = tokenizer(text.prompt + text.text, text.pair, truncation=False)["input_ids"]
            length = min(len(ids), self._width(text))
        return Tokenized(length, text, (False, text.prompt, text.task, text.wants, text.limit), length)

    def _width(self, text: Text) -> int:
        """The most tokens of an input: its own limit, else its side's, and the model's in any case."""
        first = self.model[0]
        of_side = getattr(first, f"{text.task}_length", None) if text.task else None
        return min(text.limit or of_side or NO_LIMIT, self.max_length)

    @torch.inference_mode()
    def forward(self, batch: Sequence[Any], share: int) -> Any:
        first = batch[0]
        if isinstance(first, Picture):
            return self._shown(batch, share)
        text: Text = first.text if isinstance(first, Encoded) else first
        features = self._padded(batch) if isinstance(first, Encoded) else self._preprocessed(batch)
        return self._passed(features, text.task, text.wants, share)

    def _shown(self, batch: Sequence[Picture], share: int) -> Rows:
        """Decode the pictures of a batch and run them, those of the same shapes together."""
        prepared = self.pictures.prepared(batch)
        rows = Rows(prepared)
        for indices in alike(prepared):
            features = joined([rows[index] for index in indices], self._dtype)
            output = self._passed(features, None, batch[0].wants, share)
            for index, row in zip(indices, self.split(output, len(indices)), strict=True):
                rows[index] = row
        return rows

    def _passed(self, features: Features, task: str | None, wants: frozenset[str], share: int) -> Any:
        self._use_threads(features, share)
        features = {k: v.to(self.device) if isinstance(v, torch.Tensor) else v for k, v in features.items()}
        out = self.run_modules(features, {"task": task} if task else {})
        return self.results(out, wants)

    def run_modules(self, features: Features, arguments: dict[str, Any]) -> Features:
        """The model's modules, one after the other."""
        out: Features = self.model(features, **arguments)
        return out

    def results(self, features: Features, wants: frozenset[str]) -> Any:
        """What ``split`` needs of the model's output, moved to the CPU. Runs in the forward stage."""
        raise NotImplementedError

    def split(self, output: Any, count: int) -> Sequence[Any]:
        """The row of each member of a batch, from its results."""
        raise NotImplementedError

    def rows(self, output: Any, count: int) -> Sequence[Any]:
        return output if isinstance(output, Rows) else self.split(output, count)

    def is_out_of_memory(self, error: Exception) -> bool:
        # the CPU allocator's error has no class of its own
        on_cpu = isinstance(error, RuntimeError) and "not enough memory" in str(error)
        if not on_cpu and not isinstance(error, torch.OutOfMemoryError | MemoryError):
            return False
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return True

    def _is_direct(self, text: Text) -> bool:
        # queries that the library widens with mask tokens are its own business
        return self.direct and not (text.task == "query" and self.model[0].query_expansion is not None)

    def _can_be_direct(self) -> bool:
        first = self.model[0]
        if not isinstance(first, Transformer) or any(isinstance(module, Router) for module in self.model):
            return False
        return (
            "message" not in first.modality_config
            and first.modality_config.get("text", {}).get("method") in ("forward", "get_text_features")
            and not first.processing_kwargs
            and not getattr(first, "do_lower_case", False)
            and all(getattr(module, "include_prompt", True) for module in self.model)
            and getattr(self.model.tokenizer, "is_fast", False)
        )

    def _preprocessed(self, batch: Sequence[Text]) -> Features:
        first = batch[0]
        arguments: dict[str, Any] = {"task": first.task} if first.task else {}
        if first.limit is not None:
            arguments["max_length"] = min(first.limit, self.max_length)
        inputs: list[Any] = [text.text if text.pair is None else (text.text, text.pair) for text in batch]
        if not self._only_text and first.pair is None:
            # the library would take a bare text that looks like the address or path of a file for the file
            inputs = [{"text": text} for text in inputs]
        features: Features = self.model.preprocess(inputs, prompt=first.prompt or None, **arguments)
        return features

    def _padded(self, batch: Sequence[Encoded]) -> Features:
        width = max(len(encoded.ids) for encoded in batch)
        ids = np.full((len(batch), width), self._pad_id, dtype=np.int64)
        mask = np.zeros_like(ids)
        types = np.zeros_like(ids)
        for row, encoded in enumerate(batch):
            part = slice(width - len(encoded.ids), width) if self.left else slice(0, len(encoded.ids))
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

    def _use_threads(self, features: Features, share: int) -> None:
        """Cores for this pass: its share of all, but none for so little work that waiting for each other costs more."""
        if self.device.type != "cpu":
            return
        ids = features.get("input_ids")
        tokens = ids.numel() if isinstance(ids, torch.Tensor) else TOKENS_PER_CORE * self._cores
        # counted per calling thread by OpenMP, so parallel forward passes don't disturb each other
        torch.set_num_threads(max(1, min(self._cores // share, tokens // TOKENS_PER_CORE)))


def to_numpy(values: torch.Tensor) -> NDArray[np.float32]:
    """A float32 copy on the CPU."""
    array: NDArray[np.float32] = values.float().cpu().numpy()
    return array


def _widen(_module: Any, _args: Any, features: Features) -> Features:
    """After a half-precision transformer, pooling and what follows are done in float32."""
    for name in ("token_embeddings", "sentence_embedding", "scores"):
        value = features.get(name)
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float32:
            features[name] = value.float()
    return features

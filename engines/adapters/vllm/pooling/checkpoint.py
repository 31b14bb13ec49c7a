"""What the files of a sentence-transformers checkpoint ask for beside the transformer, and whether it fits its entry.

vLLM reads them too, but leaves out in silence what it does not know: vectors would be others than the library's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from ....protocol.catalog import ModelEntry
from ...base import EngineLoadError

FILES = ["config.json", "modules.json", "*/config.json", "sentence_*_config.json", "config_sentence_transformers.json"]
BINARY = 2
MODULES = frozenset(("Transformer", "Pooling", "Dense", "Normalize"))
"""Classes of modules that vLLM runs."""

LIBRARYS_OWN = ("processing_kwargs", "query_expansion", "query_length", "document_length")
"""Settings of the library's transformer module that change its input."""

POOLINGS = {"cls": "CLS", "mean": "MEAN", "lasttoken": "LAST", "last_token": "LAST", "last": "LAST"}
"""Names of a profile and of the library to vLLM's."""

OLD_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``pooling`` is vLLM's name, ``None`` where a classification head has its own way. ``max_length``: tokens to which
    the library cuts, ``None`` where it does not say."""

    pooling: str | None = "MEAN"
    normalized: bool = False
    lowercase: bool = False
    max_length: int | None = None
    prompts: dict[str, str | None] = field(default_factory=dict)
    default_prompt: str | None = None


def read(model: str, revision: str | None, options: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint in a folder or of a hub id. ``options`` are the profile's, and go before its own. Blocks.

    Without any of the files a model has what the library gives it: the mean over the tokens, of any length.

    Raises:
        EngineLoadError: it asks for something that vLLM does not do.
    """
    folder = Path(model)
    if not folder.is_dir():
        try:
            folder = Path(snapshot_download(model, revision=revision, allow_patterns=FILES))
        except OSError as error:
            raise EngineLoadError(f"{model}: {error}", error_class=type(error).__name__, permanent=True) from error
    modules = [(part["type"].rpartition(".")[2], part["path"]) for part in _json(folder / "modules.json") or ()]
    for kind, _ in modules:
        if kind not in MODULES:
            raise _refusal(model, f"its module {kind}")
    transformer: dict[str, Any] = next(map(_json, sorted(folder.glob("sentence_*_config.json"))), {})
    for name in LIBRARYS_OWN:
        if transformer.get(name):
            raise _refusal(model, f"its {name}")
    if "message" in transformer.get("modality_config", ()):
        raise _refusal(model, "its chat template")
    poolings = [_json(folder / path / "config.json") for kind, path in modules if kind == "Pooling"]
    own = _pooling(model, poolings[0]) if poolings else None
    config = {**_json(folder / "config.json"), **options.get("hf_overrides", {})}
    scores = any(name.endswith("ForSequenceClassification") for name in config.get("architectures") or ())
    prompts = _json(folder / "config_sentence_transformers.json")
    return Checkpoint(
        pooling=None if scores else _known(model, options.get("pooling") or own or "mean"),
        normalized=any(kind == "Normalize" for kind, _ in modules),
        lowercase=bool(transformer.get("do_lower_case")),
        max_length=transformer.get("max_seq_length"),
        prompts=prompts.get("prompts") or {},
        default_prompt=prompts.get("default_prompt_name"),
    )


def check(entry: ModelEntry, does: Sequence[str], *, width: int, labels: int) -> None:
    """That a model does what its entry says: ``does`` are vLLM's tasks, ``width`` is that of its vectors.

    Raises:
        EngineLoadError: it does not.
    """
    known = ", ".join(sorted(does))
    if "embed" not in does and "encode" in entry.tasks:
        raise _unfit(entry.name, f"vLLM gives no vectors of this model; it does {known}")
    if "embed" not in does and "classify" not in does:
        raise _unfit(entry.name, f"vLLM gives no scores of this model; it does {known}")
    if "embed" not in does and labels > BINARY:
        raise _unfit(entry.name, f"{labels} labels are a classification, not a score")
    if entry.dims.get("dense", 0) > width:
        raise _unfit(entry.name, f"the entry says {entry.dims['dense']} dimensions, the model has {width}")


def check_tokenizer(name: str, tokenizer: Any) -> None:
    """Raises ``EngineLoadError`` for one without a fast form."""
    if not getattr(tokenizer, "is_fast", False):
        raise _unfit(name, "its tokenizer has no fast form, which this engine needs")


def _pooling(model: str, config: dict[str, Any]) -> str:
    """The library's name of the one pooling that a ``Pooling`` module does."""
    if config.get("include_prompt") is False:
        raise _refusal(model, "pooling without the prompt's tokens")
    modes = config.get("pooling_mode") or [name for old, name in OLD_NAMES.items() if config.get(old)] or ["mean"]
    return modes if isinstance(modes, str) else "+".join(modes)


def _known(model: str, pooling: str) -> str:
    if pooling not in POOLINGS:
        raise _refusal(model, f"pooling {pooling!r}")
    return POOLINGS[pooling]


def _json(path: Path) -> Any:
    """The file's value; an empty object where there is no such file."""
    return json.loads(path.read_text()) if path.is_file() else {}


def _refusal(model: str, what: str) -> EngineLoadError:
    message = f"{model}: vLLM does not do {what}; sentence-transformers does (engines.adapters.retrieval)"
    return EngineLoadError(message, error_class="UnsupportedModel", permanent=True)


def _unfit(name: str, why: str) -> EngineLoadError:
    return EngineLoadError(f"{name}: {why}", error_class="UnsupportedModel", permanent=True)

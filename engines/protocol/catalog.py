"""The catalog as gateways and handlers see it: resolved model entries, without the files they came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

EngineKind = Literal[
    "vllm",
    "vllm_pooling",
    "sentence_transformer",
    "sparse_encoder",
    "multi_vector_encoder",
    "cross_encoder",
    "whisper",
    "gliner",
    "spacy",
    "nli",
]


DEFAULT_PROFILE = "default"


def variant(model: str, profile: str) -> str:
    """``model``, or ``model:profile`` for a profile other than the default one: the name on the wire and in logs."""
    return model if profile == DEFAULT_PROFILE else f"{model}:{profile}"


class Profile(msgspec.Struct, kw_only=True, frozen=True):
    """One way to run a model, with ``extends`` already applied.

    ``loadtime`` and ``runtime`` are the file's ``adapter_options``; ``source`` is a hub id or a local path.
    """

    name: str
    engine: EngineKind
    adapter_path: str
    source: str
    max_batch_tokens: int = 16384
    compute_precision: str | None = None
    loadtime: dict[str, Any] = {}
    runtime: dict[str, Any] = {}
    lora_paths: dict[str, str] = {}

    def option(self, name: str, default: Any = None) -> Any:
        """An adapter option; one of ``runtime`` goes before one of ``loadtime``."""
        return self.runtime.get(name, self.loadtime.get(name, default))


class Generation(msgspec.Struct, kw_only=True, frozen=True):
    """What a generation model can do (``tasks.generate`` of the file)."""

    context_length: int
    max_output_tokens: int | None = None
    grammar: tuple[str, ...] = ()
    tools: bool = False
    streaming: bool = True
    code: bool = False
    sql: bool = False
    guard: bool = False
    chat_template_kwargs: dict[str, Any] = {}


class ModelEntry(msgspec.Struct, kw_only=True, frozen=True):
    """One model of the catalog. ``dims`` maps an output type to its width.

    ``pool`` is the queue pool whose workers alone serve the model; ``None``: those of any pool.
    """

    name: str
    revision: str | None = None
    inputs: tuple[str, ...] = ("text",)
    tasks: tuple[Literal["generate", "encode", "score", "extract", "transcribe"], ...] = ()
    dims: dict[str, int] = {}
    max_sequence_length: int | None = None
    generation: Generation | None = None
    profiles: dict[str, Profile] = {}
    bundles: tuple[str, ...] = ()
    pool: str | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """Output names of the wire: vector kinds, ``score``, ``json`` for extract, ``tokens`` for generate."""
        names = list(self.dims)
        names += [
            wire
            for task, wire in (("score", "score"), ("extract", "json"), ("generate", "tokens"))
            if task in self.tasks
        ]
        return tuple(names)


class Bundle(msgspec.Struct, kw_only=True, frozen=True):
    """A set of adapters that one worker can run together. The lowest ``priority`` is the default."""

    name: str
    engine: str
    adapters: tuple[str, ...]
    priority: int = 100
    source: str = "embedded"


class Resolved(msgspec.Struct, frozen=True):
    """Where a model argument leads: ``model``, one of its profiles, and the bundle that will run it."""

    model: ModelEntry
    profile: Profile
    bundle: str


class UnknownModel(LookupError):
    """No model of the catalog has that name."""


class UnknownProfile(LookupError):
    """The model exists, the profile named after ``:`` does not."""


class UnknownBundle(LookupError):
    """No bundle has the name before ``:/``."""


class BundleConflict(LookupError):
    """The bundle exists and cannot run the model. ``compatible`` lists those that can."""

    def __init__(self, message: str, compatible: Sequence[str]) -> None:
        super().__init__(message)
        self.compatible = tuple(compatible)


class CatalogView(Protocol):
    """Read access to the catalog of this process."""

    @property
    def epoch(self) -> int:
        """Grows by one with each applied change; 0 at the start."""
        ...

    def models(self) -> Sequence[ModelEntry]:
        """All models, sorted by name."""
        ...

    def bundles(self) -> Sequence[Bundle]:
        """All bundles, sorted by name."""
        ...

    def bundle_config_hash(self, bundle: str) -> str:
        """SHA-256 (64 hex digits) of what the workers of a bundle run by this catalog; they report theirs."""
        ...

    def resolve(self, model: str) -> Resolved:
        """Resolve ``id``, ``org__name``, ``model:profile``, ``bundle:/model`` or an alias, whatever its case.

        Raises:
            UnknownModel, UnknownProfile, UnknownBundle, BundleConflict.
        """
        ...

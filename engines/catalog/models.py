"""From the fields of a model file to a ``ModelEntry``."""

from __future__ import annotations

from typing import Any, Literal

from engines.protocol.catalog import EngineKind, Generation, ModelEntry, Profile

from .adapters import Unservable, engine_for
from .reading import CatalogError, Lines

VECTORS = ("dense", "sparse", "multivector")
INPUTS = ("text", "image", "document", "audio", "video")
GRAMMARS = ("json_schema", "regex", "ebnf")
MAX_BATCH_TOKENS = 16384

Task = Literal["generate", "encode", "score", "extract", "transcribe"]


def build(values: dict[str, Any], lines: Lines) -> tuple[ModelEntry, dict[str, str]]:
    """Build the entry of a model; the second value names the profiles left out, with the reason.

    Raises:
        CatalogError: a field is missing or contradicts another one.
        Unservable: the file is well formed and no engine here can serve its default profile.
    """
    name = values.get("sie_id")
    if not name:
        raise CatalogError([lines.problem("sie_id", "is missing")])
    profiles = _extended(values.get("profiles") or {}, lines)
    if "default" not in profiles:
        raise CatalogError([lines.problem("profiles", "has no profile named default")])
    tasks = values.get("tasks") or {}
    encode = tasks.get("encode") or {}
    dims = {kind: encode[kind].get("dim") for kind in VECTORS if encode.get(kind) is not None}
    for kind, dim in dims.items():
        if dim is None or dim < 1:
            raise CatalogError([lines.problem(f"tasks.encode.{kind}.dim", "must be a positive width")])
    names = [task for task in ("generate", "encode", "score", "extract") if tasks.get(task) is not None]
    source = values.get("source") or values.get("hf_id")
    if not source:
        raise Unservable("the model has neither hf_id nor source")
    inputs = tuple(kind for kind in INPUTS if (values.get("inputs") or {}).get(kind)) or ("text",)
    built: dict[str, Profile] = {}
    refused: dict[str, str] = {}
    for profile, fields in profiles.items():
        path = _adapter_path(profile, fields, lines)
        try:
            built[profile] = _profile(profile, fields, source, engine_for(path, names, list(dims), inputs))
        except Unservable as error:
            if profile == "default":
                raise
            refused[profile] = str(error)
    engine = built["default"].engine
    entry = ModelEntry(
        name=name,
        revision=values.get("hf_revision"),
        inputs=inputs,
        tasks=_tasks(names, engine),
        dims=_served(dims, engine),
        max_sequence_length=values.get("max_sequence_length"),
        generation=_generation(tasks.get("generate"), values, lines),
        profiles=built,
        pool=(values.get("pool") or "").strip().lower() or None,
    )
    return entry, refused


def _tasks(names: list[str], engine: EngineKind) -> tuple[Task, ...]:
    # the catalog files have no name for transcription: it is what a speech engine does
    if engine == "whisper":
        return ("transcribe",)
    known: tuple[Task, ...] = ("generate", "encode", "score", "extract")
    return tuple(task for task in known if task in names)


def _served(dims: dict[str, int], engine: EngineKind) -> dict[str, int]:
    """The vector kinds that the engine really gives."""
    gives = {
        "vllm_pooling": ("dense",),
        "sentence_transformer": ("dense", "multivector"),
        "sparse_encoder": ("sparse",),
        "multi_vector_encoder": ("multivector",),
    }.get(engine, ())
    return {kind: dim for kind, dim in dims.items() if kind in gives}


def _generation(fields: dict[str, Any] | None, values: dict[str, Any], lines: Lines) -> Generation | None:
    if fields is None:
        return None
    context = fields.get("context_length") or values.get("max_sequence_length")
    if not context:
        raise CatalogError([lines.problem("tasks.generate.context_length", "is missing")])
    capabilities = fields.get("capabilities") or {}
    grammar = capabilities.get("grammar") or []
    for kind in grammar:
        if kind not in GRAMMARS:
            raise CatalogError(
                [lines.problem("tasks.generate.capabilities.grammar", f"{kind!r} is not one of {GRAMMARS}")]
            )
    return Generation(
        context_length=context,
        max_output_tokens=fields.get("max_output_tokens"),
        grammar=tuple(grammar),
        tools=capabilities.get("tools", False),
        streaming=capabilities.get("streaming", True),
        code=capabilities.get("code", False),
        sql=capabilities.get("sql", False),
        guard=capabilities.get("guard", False),
        chat_template_kwargs=fields.get("chat_template_kwargs") or {},
    )


def _adapter_path(profile: str, fields: dict[str, Any], lines: Lines) -> str:
    path = fields.get("adapter_path")
    if not isinstance(path, str) or not path:
        raise CatalogError([lines.problem(f"profiles.{profile}.adapter_path", "is missing")])
    if fields.get("max_batch_tokens", 1) < 1:
        raise CatalogError([lines.problem(f"profiles.{profile}.max_batch_tokens", "must be positive")])
    return path


def _profile(name: str, fields: dict[str, Any], source: str, engine: EngineKind) -> Profile:
    options = fields.get("adapter_options") or {}
    loadtime = dict(options.get("loadtime") or {})
    return Profile(
        name=name,
        engine=engine,
        adapter_path=fields["adapter_path"],
        source=source,
        max_batch_tokens=fields.get("max_batch_tokens", MAX_BATCH_TOKENS),
        compute_precision=fields.get("compute_precision"),
        lora_paths=loadtime.get("lora_paths") or {},
        loadtime=loadtime,
        runtime=dict(options.get("runtime") or {}),
    )


def _extended(profiles: dict[str, dict[str, Any]], lines: Lines) -> dict[str, dict[str, Any]]:
    """Apply ``extends``: a profile has its base's fields where it has none; options are merged one by one."""
    done: dict[str, dict[str, Any]] = {}

    def resolve(name: str, trail: tuple[str, ...]) -> dict[str, Any]:
        if name in done:
            return done[name]
        fields = dict(profiles[name] or {})
        base = fields.pop("extends", None)
        if base is not None:
            field = f"profiles.{name}.extends"
            if base not in profiles:
                raise CatalogError([lines.problem(field, f"there is no profile {base!r}")])
            if base in (*trail, name):
                raise CatalogError([lines.problem(field, f"goes in a circle through {base!r}")])
            fields = _merge(resolve(base, (*trail, name)), fields)
        done[name] = fields
        return fields

    for name in profiles:
        resolve(name, ())
    return done


def _merge(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged

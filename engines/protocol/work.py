"""Work items: what a gateway asks a worker to do. Encoded as MessagePack on the pool's work queue."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

OutputType = Literal["dense", "sparse", "multivector"]
OutputDtype = Literal["float32", "float16", "int8", "uint8", "binary"]
GrammarKind = Literal["json_schema", "json_object", "regex", "ebnf", "choice", "structural_tag"]


class WorkItem(msgspec.Struct, kw_only=True, tag_field="operation", omit_defaults=True):
    """Base of every work item.

    ``model`` and ``profile`` are resolved names of the catalog. ``time_left`` is how many seconds after its publication
    an answer is still of use (0: always); it is relative because clocks of two machines differ. ``load_patience``:
    seconds more, where the model has to be loaded (again) first. ``attempt`` counts the publications of one request
    from 0. Work of one ``routing_key`` goes to one worker where that is possible. Answers go to ``reply_subject`` as a
    MessagePack array of events.
    """

    request_id: str
    model: str
    profile: str = "default"
    bundle: str = "default"
    pool: str = "default"
    reply_subject: str = ""
    time_left: float = 0.0
    load_patience: float = 0.0
    attempt: int = 0
    routing_key: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None


class Grammar(msgspec.Struct, frozen=True, omit_defaults=True):
    """A constraint on the generated text.

    ``value``: a JSON Schema as JSON text, a regex, an EBNF grammar, a JSON array of texts, or a structural tag as JSON
    text. ``param`` is the request field it came from, for errors.
    """

    kind: GrammarKind
    value: str = ""
    label: str | None = None
    strict: bool = False
    param: str | None = None


class Sampling(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Sampling parameters; ``None`` leaves the model entry's default, then the engine's.

    ``max_tokens`` is what the caller asked for; with ``max_tokens_is_default`` the worker clamps it to what the
    context leaves, otherwise a value that does not fit is refused (``context_exceeded``).
    ``logprobs`` is the number of alternatives per token (0: the chosen token only, ``None``: off).
    ``stop_tokens`` are texts of single tokens that end the generation; one that the vocabulary lacks is a stop string.
    ``prompt_logprobs`` is like ``logprobs``, for the prompt. ``tokens_as_ids`` names tokens of log probabilities
    ``token_id:<id>``. With ``beam_width`` the text is searched for, ``length_penalty`` being the exponent of the length
    by which scores are divided; ``beam_width`` is at least ``n``.
    """

    max_tokens: int
    max_tokens_is_default: bool = False
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    stop_tokens: tuple[str, ...] = ()
    logit_bias: dict[int, float] | None = None
    logprobs: int | None = None
    n: int = 1
    best_of: int | None = None
    min_p: float | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    prompt_logprobs: int | None = None
    tokens_as_ids: bool = False
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    beam_width: int | None = None
    length_penalty: float = 1.0


class Rendering(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How messages become a prompt.

    ``truncate_prompt_tokens`` keeps that many tokens of the end; -1 keeps what leaves room for ``max_tokens``.
    ``chat_template`` is a caller's own: untrusted. Prompts share cached prefixes with those of equal ``cache_salt``.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    truncate_prompt_tokens: int | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template: str | None = None
    mm_processor_kwargs: dict[str, Any] = {}
    cache_salt: str | None = None


class Image(msgspec.Struct, frozen=True, omit_defaults=True):
    """Encoded image bytes (PNG, JPEG, ...), decoded and checked by the worker.

    ``param`` is the request field it came from, for errors.
    """

    data: bytes
    format: str | None = None
    param: str | None = None


class GenerateWork(WorkItem, kw_only=True, tag="generate", omit_defaults=True):
    """Generate text from a raw ``prompt`` or from chat ``messages`` (exactly one is set).

    ``messages`` are OpenAI chat messages with roles already normalised; image parts are
    ``{"type": "image", "index": i}`` and refer to ``images[i]``. With ``stream`` a delta is sent per engine step,
    without it one delta per choice at the end. Work of lower ``priority`` goes first, where the engine has priorities.
    """

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    images: list[Image] = []
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    chat_template_kwargs: dict[str, Any] = {}
    sampling: Sampling
    grammar: Grammar | None = None
    lora_adapter: str | None = None
    stream: bool = False
    rendering: Rendering = Rendering()
    priority: int = 0


class Item(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One input of encode, score or extract. ``id`` is the caller's own."""

    id: str | None = None
    text: str | None = None
    images: list[Image] = []
    document: bytes | None = None
    document_format: str | None = None


class EncodeWork(WorkItem, kw_only=True, tag="encode", omit_defaults=True):
    """Encode items to vectors; results keep the order of ``items``."""

    items: list[Item]
    output_types: tuple[OutputType, ...] = ("dense",)
    output_dtype: OutputDtype = "float32"
    instruction: str | None = None
    is_query: bool | None = None
    options: dict[str, Any] = {}


class ScoreWork(WorkItem, kw_only=True, tag="score", omit_defaults=True):
    """Score every item against ``query``: raw scores, in the order of ``items`` (ranking is the handler's)."""

    query: Item
    items: list[Item]
    instruction: str | None = None
    max_sequence_length: int | None = None
    options: dict[str, Any] = {}


class ExtractWork(WorkItem, kw_only=True, tag="extract", omit_defaults=True):
    """Extract entities, relations, classifications or structured data from items."""

    items: list[Item]
    labels: list[str] | None = None
    output_schema: dict[str, Any] | None = None
    instruction: str | None = None
    options: dict[str, Any] = {}


class TranscribeWork(WorkItem, kw_only=True, tag="transcribe", omit_defaults=True):
    """Transcribe one audio file (any container that FFmpeg reads)."""

    audio: bytes
    filename: str = ""
    language: str | None = None
    prompt: str | None = None
    temperature: float | None = None
    word_timestamps: bool = False


Work = GenerateWork | EncodeWork | ScoreWork | ExtractWork | TranscribeWork

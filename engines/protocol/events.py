"""Events: what a worker answers. One message to a gateway is a MessagePack array of events of any of its requests."""

from __future__ import annotations

import builtins
from typing import Any, Literal

import msgspec

FailureCode = Literal[
    "invalid_request",
    "unsupported_field",
    "unknown_lora_adapter",
    "model_not_found",
    "context_exceeded",
    "INVALID_INPUT",
    "PAYLOAD_TOO_LARGE",
    "RESOURCE_EXHAUSTED",
    "MODEL_LOADING",
    "LORA_LOADING",
    "MODEL_LOAD_FAILED",
    "cancelled",
    "transport_failure",
    "malformed_worker_response",
    "first_chunk_timeout",
    "inter_chunk_timeout",
    "overall_timeout",
    "inference_error",
    "rate_limit_exceeded",
]
RefusalReason = Literal["kv_budget", "model_not_loaded", "worker_shutting_down"]
FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "error"]


class Event(msgspec.Struct, kw_only=True, tag_field="kind", omit_defaults=True):
    """Base of every event. ``seq`` counts the events of one attempt from 0; a gap is a transport failure."""

    request_id: str
    attempt_id: str = ""
    seq: int = 0


class Admitted(Event, kw_only=True, tag="admitted", omit_defaults=True):
    """The worker took the work: template rendered, lengths checked, grammar compiled, adapter found, model loaded."""

    worker: str = ""
    prompt_tokens: int = 0
    queue_ms: float = 0.0


class TokenLogprob(msgspec.Struct, array_like=True):
    """One token with its log probability (finite; -inf is clamped to -9999.0) and its raw UTF-8 bytes."""

    token: str
    logprob: float
    bytes: builtins.bytes  # the field's own name hides the type
    top: list[TokenLogprob] = []


class ToolCallDelta(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Part of a tool call. The first delta of an ``index`` has ``id`` and ``name``; later ones only ``arguments``."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Delta(Event, kw_only=True, tag="delta", omit_defaults=True):
    """New output of one choice. ``text`` holds whole code points and never a part of a stop string.

    ``finish_reason`` is set in the last delta of a choice and in no other. ``tokens`` counts the new tokens.
    """

    choice: int = 0
    text: str = ""
    reasoning: str = ""
    tokens: int = 0
    logprobs: list[TokenLogprob] | None = None
    tool_calls: list[ToolCallDelta] = []
    finish_reason: FinishReason | None = None


class Usage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a request consumed, counted by the model's own tokenizer."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    images: int = 0
    audio_ms: int = 0


class Timing(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Measured on the worker, in milliseconds; 0.0 where a stage did not happen."""

    queue_ms: float = 0.0
    tokenization_ms: float = 0.0
    inference_ms: float = 0.0
    postprocessing_ms: float = 0.0
    payload_fetch_ms: float = 0.0
    ttft_ms: float = 0.0
    total_ms: float = 0.0


class Tensor(msgspec.Struct):
    """An array as raw bytes: ``dtype`` is NumPy's name with byte order (``<f4``), ``data`` is C-contiguous."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class SparseVector(msgspec.Struct):
    """``indices`` int32 ascending and ``values`` float32 of the non-zero entries; ``dims`` is the vocabulary size."""

    dims: int
    indices: Tensor
    values: Tensor


class ItemError(msgspec.Struct):
    """Why one item of a batch has no result."""

    code: FailureCode
    message: str


class EncodeOutput(msgspec.Struct, kw_only=True, omit_defaults=True, tag="encode"):
    """Vectors of a batch. ``dense`` is (items, dims) with undefined rows for the items in ``errors``;
    ``sparse`` and ``multivector`` have one entry per item, ``None`` for the items in ``errors``."""

    dense: Tensor | None = None
    dense_dims: int = 0
    sparse: list[SparseVector | None] | None = None
    multivector: list[Tensor | None] | None = None
    token_dims: int = 0
    output_dtype: str = "float32"
    errors: dict[int, ItemError] = {}


class ScoreOutput(msgspec.Struct, kw_only=True, omit_defaults=True, tag="score"):
    """Raw scores (float64, finite), one per item in request order. ``kind`` says what they are:
    ``logit`` (cross-encoder before any sigmoid), ``similarity`` (cosine, -1 to 1) or ``maxsim``."""

    scores: list[float]
    kind: Literal["logit", "similarity", "maxsim"]


class ExtractOutput(msgspec.Struct, kw_only=True, omit_defaults=True, tag="extract"):
    """One plain object per item with ``entities``, ``relations``, ``classifications``, ``data`` and ``error``."""

    items: list[dict[str, Any]]


class Word(msgspec.Struct):
    word: str
    start: float
    end: float


class Segment(msgspec.Struct):
    id: int
    start: float
    end: float
    text: str


class TranscribeOutput(msgspec.Struct, kw_only=True, omit_defaults=True, tag="transcribe"):
    """A transcript; times in seconds from the start of the audio."""

    text: str
    language: str
    duration_ms: int
    segments: list[Segment] = []
    words: list[Word] = []


class PromptToken(msgspec.Struct, array_like=True):
    """What the model thought of one token at a place of the prompt; ``rank`` 1 is the likeliest."""

    id: int
    token: str
    logprob: float
    rank: int | None = None


class GenerateOutput(msgspec.Struct, kw_only=True, omit_defaults=True, tag="generate"):
    """What a generation has beside its text: for each token of the prompt that token and its alternatives, ``None`` for
    the first."""

    prompt_logprobs: list[list[PromptToken] | None]


Output = EncodeOutput | ScoreOutput | ExtractOutput | TranscribeOutput | GenerateOutput


class Completed(Event, kw_only=True, tag="completed", omit_defaults=True):
    """The last event of work that succeeded. The text of a generation came in deltas;
    its ``output`` has prompt log probabilities, where they were asked for."""

    worker: str = ""
    usage: Usage
    timing: Timing
    output: Output | None = None
    bundle_config_hash: str | None = None
    execution_identity: str | None = None


class Failed(Event, kw_only=True, tag="failed", omit_defaults=True):
    """The last event of work that did not succeed.

    ``param`` is the request field at fault, ``retry_after`` seconds when a retry can help, ``details`` extra facts
    (``prompt_tokens``, ``error_class``, ``attempts``, ``permanent``: a retry cannot help).
    """

    code: FailureCode
    message: str
    param: str | None = None
    retry_after: float | None = None
    details: dict[str, Any] = {}


class Refused(Event, kw_only=True, tag="nak", omit_defaults=True):
    """The worker does not take the work now; the gateway may hand it to another. Never seen by whoever asked."""

    reason: RefusalReason
    worker: str = ""


AnyEvent = Admitted | Delta | Completed | Failed
WireEvent = AnyEvent | Refused


class Missed(msgspec.Struct, array_like=True, frozen=True):
    """Asks a worker to send events again. ``seen`` is the next number by attempt; when the answer is ``owned``, only
    those attempts are of use, otherwise any other as well, from its first event."""

    request_id: str
    seen: dict[str, int]
    owned: bool

"""From the caller's sampling parameters to vLLM's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

from ...protocol.catalog import ModelEntry, Profile
from ...protocol.work import GenerateWork, Sampling
from ..base import WorkError
from .logprobs import Vocabulary

FLOAT32_TINY = 1.1754944e-38
SEEDS = 2**62
"""Negative seeds become others below this one."""
GREEDY = 1e-5
"""Below this temperature vLLM takes the likeliest token."""
CATALOG_NAMES = {"min_new_tokens": "min_tokens"}
"""Names in the catalog's ``default_sampling`` that differ from the protocol's."""

PLAIN = (
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_p",
    "min_tokens",
    "seed",
)
"""Parameters that pass as they are; absent ones take the model entry's default, then vLLM's."""


def room_for_output(
    sampling: Sampling, entry: ModelEntry, prompt_tokens: int, context_length: int, *, prompt: str = "messages"
) -> int:
    """How many tokens may be generated; ``prompt`` is the field that the prompt comes from.

    Raises:
        WorkError: ``context_exceeded``, with both numbers, when the prompt, or prompt and output, do not fit.
    """
    asked = sampling.max_tokens
    details: dict[str, object] = {"prompt_tokens": prompt_tokens, "context_length": context_length}
    if prompt_tokens >= context_length:
        message = (
            f"This model's maximum context length is {context_length} tokens, but the prompt has {prompt_tokens} "
            "tokens and leaves no room for output. Shorten the prompt."
        )
        raise WorkError("context_exceeded", message, param=prompt, details=details)
    left = context_length - prompt_tokens
    if sampling.max_tokens_is_default:
        limit = entry.generation.max_output_tokens if entry.generation else None
        return min(asked, left, limit or left)
    if asked > left:
        message = (
            f"This model's maximum context length is {context_length} tokens, but {prompt_tokens + asked} were "
            f"requested: {prompt_tokens} in the prompt and {asked} for the output. Shorten the prompt or ask for less."
        )
        raise WorkError("context_exceeded", message, param="max_tokens", details={**details, "max_tokens": asked})
    return asked


def parameters(
    work: GenerateWork,
    profile: Profile,
    max_tokens: int,
    vocabulary: Vocabulary,
    *,
    constraint: StructuredOutputsParams | None = None,
    skip_special_tokens: bool = True,
    forced_call: bool = False,
) -> SamplingParams:
    """vLLM's parameters: the caller's values, then the profile's ``default_sampling``, then vLLM's own defaults.

    Nothing stops a ``forced_call`` but its grammar: any other end would leave broken arguments.

    Raises:
        WorkError: a value that only the model can judge is wrong (``logit_bias`` outside the vocabulary, more
            ``min_tokens`` than there is room for), or ``ignore_eos`` would lead out of the ``constraint``.
    """
    sampling = work.sampling
    if constraint is not None and sampling.ignore_eos:
        # vLLM lets any token follow where the grammar has ended
        message = "an answer that a grammar holds must end where the grammar does"
        raise WorkError("unsupported_field", message, param="ignore_eos")
    chosen = _plain(sampling, profile)
    if "min_tokens" in chosen:
        if (sampling.min_tokens or 0) > max_tokens:
            message = f"'min_tokens' ({sampling.min_tokens}) is more than the {max_tokens} tokens that can be generated"
            raise WorkError("invalid_request", message, param="min_tokens")
        chosen["min_tokens"] = min(chosen["min_tokens"], max_tokens)
    stop, stop_token_ids = ([], []) if forced_call else _stops(sampling, profile, vocabulary)
    # a stream cannot be ranked before it ends
    candidates = sampling.n if work.stream else max(sampling.n, sampling.best_of or 0)
    ranked = candidates > sampling.n
    if candidates > 1 and chosen.get("temperature", 1.0) < GREEDY:
        # vLLM refuses several greedy candidates; the likeliest token of each step is the same choice
        chosen |= {"temperature": 1.0, "top_k": 1, "top_p": 1.0}
    return SamplingParams(
        n=candidates,
        max_tokens=max_tokens,
        stop=stop or None,
        stop_token_ids=stop_token_ids or None,
        logit_bias=_logit_bias(sampling, vocabulary),
        allowed_token_ids=_allowed(sampling, vocabulary),
        bad_words=list(sampling.bad_words) or None,
        ignore_eos=sampling.ignore_eos,
        include_stop_str_in_output=sampling.include_stop_str_in_output,
        spaces_between_special_tokens=sampling.spaces_between_special_tokens,
        prompt_logprobs=sampling.prompt_logprobs,
        # the ranking of candidates needs the log probabilities of the chosen tokens
        logprobs=sampling.logprobs if sampling.logprobs is not None else (0 if ranked else None),
        output_kind=RequestOutputKind.DELTA if work.stream else RequestOutputKind.FINAL_ONLY,
        structured_outputs=constraint,
        skip_special_tokens=skip_special_tokens and sampling.skip_special_tokens,
        **chosen,
    )


def _plain(sampling: Sampling, profile: Profile) -> dict[str, Any]:
    file: dict[str, Any] = profile.runtime.get("default_sampling") or {}
    defaults = {CATALOG_NAMES.get(name, name): value for name, value in file.items()}
    chosen: dict[str, Any] = {}
    for name in PLAIN:
        value = getattr(sampling, name)
        value = defaults.get(name) if value is None else value
        if value is not None:
            chosen[name] = value
    if chosen.get("seed", 0) < 0:
        # -1 is no seed to vLLM, also for a later choice, whose seed is this one and its index
        chosen["seed"] %= SEEDS
    if "repetition_penalty" in chosen:
        # below it vLLM's float32 is 0, and a token that a grammar forbids (-inf) times 0 is no number
        chosen["repetition_penalty"] = max(chosen["repetition_penalty"], FLOAT32_TINY)
    return chosen


def _stops(sampling: Sampling, profile: Profile, vocabulary: Vocabulary) -> tuple[list[str], list[int]]:
    """Stop strings and stop tokens. A stop token's text that is no single token is a stop string."""
    # an id beyond the vocabulary would be an index beyond the logits
    _inside(sampling.stop_token_ids, vocabulary, "stop_token_ids")
    strings, tokens = list(sampling.stop), list(sampling.stop_token_ids)
    for text in (*sampling.stop_tokens, *(profile.runtime.get("stop_tokens") or ())):
        index = vocabulary.index(text)
        if index is None:
            strings.append(text)
        else:
            tokens.append(index)
    return strings, tokens


def _logit_bias(sampling: Sampling, vocabulary: Vocabulary) -> dict[int, float] | None:
    if not sampling.logit_bias:
        return None
    _inside(sampling.logit_bias, vocabulary, "logit_bias")
    return dict(sampling.logit_bias)


def _allowed(sampling: Sampling, vocabulary: Vocabulary) -> list[int] | None:
    _inside(sampling.allowed_token_ids, vocabulary, "allowed_token_ids")
    return sorted(set(sampling.allowed_token_ids)) or None


def _inside(tokens: Iterable[int], vocabulary: Vocabulary, param: str) -> None:
    outside = sorted(token for token in tokens if not 0 <= token < vocabulary.size)
    if outside:
        message = f"{param} names token {outside[0]}, which is outside the vocabulary of {vocabulary.size} tokens"
        raise WorkError("invalid_request", message, param=param)

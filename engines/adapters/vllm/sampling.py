"""From the caller's sampling parameters to vLLM's."""

from __future__ import annotations

from typing import Any

from vllm.sampling_params import RequestOutputKind, SamplingParams

from ...protocol.catalog import ModelEntry, Profile
from ...protocol.work import GenerateWork, Sampling
from ..base import WorkError

# names of the catalog's default_sampling that differ from the protocol's
CATALOG_NAMES = {"min_new_tokens": "min_tokens"}
OPTIONAL = (
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_tokens",
    "seed",
)


def room_for_output(sampling: Sampling, entry: ModelEntry, prompt_tokens: int, context_length: int) -> int:
    """How many tokens may be generated.

    Raises:
        WorkError: ``context_exceeded``, with both numbers, when prompt or prompt and output do not fit.
    """
    asked = sampling.max_tokens
    details: dict[str, object] = {"prompt_tokens": prompt_tokens, "context_length": context_length}
    if prompt_tokens >= context_length:
        message = (
            f"This model's maximum context length is {context_length} tokens, but the prompt has {prompt_tokens} "
            "tokens and leaves no room for output. Shorten the prompt."
        )
        raise WorkError("context_exceeded", message, details=details)
    left = context_length - prompt_tokens
    if sampling.max_tokens_is_default:
        limit = entry.generation.max_output_tokens if entry.generation else None
        return min(asked, left, limit or left)
    if asked > left:
        message = (
            f"This model's maximum context length is {context_length} tokens, but {prompt_tokens + asked} were "
            f"requested: {prompt_tokens} in the prompt and {asked} for the output. Shorten the prompt or ask for less."
        )
        raise WorkError("context_exceeded", message, details={**details, "max_tokens": asked})
    return asked


def parameters(work: GenerateWork, profile: Profile, max_tokens: int, vocabulary: int) -> SamplingParams:
    """vLLM's parameters: the caller's values, then the profile's ``default_sampling``, then vLLM's own defaults.

    Raises:
        WorkError: a value that only the model can judge is wrong (``logit_bias`` outside the vocabulary).
    """
    sampling = work.sampling
    defaults = {CATALOG_NAMES.get(key, key): value for key, value in _defaults(profile).items()}
    chosen: dict[str, Any] = {}
    for name in OPTIONAL:
        value = getattr(sampling, name)
        if value is None:
            value = defaults.get(name)
        if value is not None:
            chosen[name] = value
    if "min_tokens" in chosen:
        chosen["min_tokens"] = min(chosen["min_tokens"], max_tokens)
    if sampling.logit_bias:
        outside = sorted(token for token in sampling.logit_bias if not 0 <= token < vocabulary)
        if outside:
            message = f"logit_bias names token {outside[0]}, which is outside the vocabulary of {vocabulary} tokens"
            raise WorkError("invalid_request", message, param="logit_bias")
        chosen["logit_bias"] = dict(sampling.logit_bias)
    candidates = max(sampling.n, sampling.best_of or 0)
    ranked = candidates > sampling.n
    return SamplingParams(
        n=candidates,
        max_tokens=max_tokens,
        stop=list(sampling.stop) or None,
        stop_token_ids=list(sampling.stop_token_ids) or None,
        # ranking by likelihood needs the log probabilities of the chosen tokens
        logprobs=sampling.logprobs if sampling.logprobs is not None else (0 if ranked else None),
        output_kind=RequestOutputKind.DELTA if work.stream else RequestOutputKind.FINAL_ONLY,
        **chosen,
    )


def _defaults(profile: Profile) -> dict[str, Any]:
    return dict(profile.runtime.get("default_sampling") or {})

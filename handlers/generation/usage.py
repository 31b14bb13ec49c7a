"""Token counts of an answer."""

from __future__ import annotations

from engines.protocol.events import Usage
from generated.sie import models


def openai_usage(usage: Usage) -> models.ChatCompletionUsage:
    """Counts of chat and completions."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return models.ChatCompletionUsage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )


def native_usage(usage: Usage) -> models.GenerateUsage:
    """Counts of native generate."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return models.GenerateUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def responses_usage(usage: Usage) -> models.ResponsesUsage:
    """Counts of responses."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return models.ResponsesUsage(
        input_tokens=prompt,
        output_tokens=completion,
        total_tokens=prompt + completion,
        input_tokens_details=models.ResponsesInputDetails(cached_tokens=usage.cached_tokens, cache_write_tokens=0),
        output_tokens_details=models.ResponsesOutputDetails(reasoning_tokens=0),
    )

"""Requests that leave the model no token, which only shows as it generates: vLLM then takes one that nothing allows."""

from __future__ import annotations

from vllm.outputs import CompletionOutput

from ...protocol.work import GenerateWork
from ..base import WorkError


def check(work: GenerateWork, output: CompletionOutput, *, generated: int, constrained: bool) -> None:
    """Refuse the work that ``output`` belongs to, if it could not go on within its own limits.

    ``generated`` counts the tokens of this choice so far.

    Raises:
        WorkError: ``invalid_request`` for the parameter that left nothing.
    """
    sampling = work.sampling
    if output.finish_reason == "error" and constrained:
        # the constraint did not accept the token that was taken
        own = (work.grammar.param if work.grammar else None) or "tools"
        param = "bad_words" if sampling.bad_words else "min_tokens" if sampling.min_tokens else own
        raise WorkError("invalid_request", f"with '{param}' the constraint left no token to go on with", param=param)
    if output.finish_reason == "stop" and constrained:
        # where the constraint allows nothing but the end, vLLM ends before ``min_tokens``
        content = generated if isinstance(output.stop_reason, str) else generated - 1
        if content < (least := sampling.min_tokens or 0):
            message = f"the constraint ends after {content} tokens, before 'min_tokens' ({least})"
            raise WorkError("invalid_request", message, param="min_tokens")
    if sampling.allowed_token_ids and not set(sampling.allowed_token_ids).issuperset(output.token_ids):
        message = "the other parameters left none of the allowed tokens"
        raise WorkError("invalid_request", message, param="allowed_token_ids")

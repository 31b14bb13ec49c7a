"""POST /v1/responses."""

from __future__ import annotations

from time import time
from typing import Any, Final

from engines.protocol.work import GenerateWork
from generated.sie import models
from generated.sie.interfaces import Context

from ..measurements import success_headers
from ..resolution import Target, resolve
from ..settings import Settings
from ..surface import Surface
from . import gates, sampling, timeouts
from .call import admit
from .chat import template_kwargs
from .collect import Collected, collect
from .fields import given
from .identity import Identity, identity
from .messages import role
from .responses_rules import RESPONSES_RULES
from .rules import check
from .usage import responses_usage

_NAMES: Final = {"prompt": "input", "messages": "input", "max_tokens": "max_output_tokens"}


class ResponsesSurface(Surface):
    """Responses: stateless, text only, blocking."""

    async def proxy_responses(self, context: Context, body: models.ResponsesRequest) -> models.ResponsesResponse:
        """Answer an input: a string is continued as it is, messages go through the model's chat template.

        Raises:
            Failure: by contract A.4.
        """
        check(RESPONSES_RULES, body)
        target = resolve(self.services, context, body.model)
        settings = self.services.settings
        work = responses_work(context, body, target, settings)
        limits = timeouts.limits(settings, target.profile.runtime, work.sampling.max_tokens)
        limits = limits if work.stream else timeouts.whole(limits)
        generation = await admit(self.services, work, target.route, limits, _NAMES)
        collected = await collect(generation)
        context.response_headers |= success_headers(
            context, generation.answer, collected.completed, since=generation.since
        )
        who = identity("resp", context.request_id, target)
        return responses_response(who, context.request_id, work, target, collected)


def responses_work(context: Context, body: models.ResponsesRequest, target: Target, settings: Settings) -> GenerateWork:
    """The work item of a responses request that keeps the rules.

    Raises:
        Failure: 400, the model cannot do what is asked.
    """
    ability = gates.generation(target)
    limit = sampling.Limit.of(given(body.max_output_tokens), sampling.TEXT_MAX_TOKENS, ability.max_output_tokens)
    gates.output_fits(limit.tokens, ability, "max_output_tokens")
    work = GenerateWork(
        **target.fields(context),
        sampling=sampling.responses(body, limit),
        stream=timeouts.gaps_limited(settings, target.profile.runtime),
    )
    if isinstance(body.input, str):
        work.prompt = body.input
    else:
        work.messages = [_message(item) for item in body.input]
        work.chat_template_kwargs = template_kwargs(None, ability, target)
    return work


def _message(item: models.ResponsesRequestInputItem) -> dict[str, Any]:
    content = given(item.content)
    text = "".join(given(part.text) or "" for part in content) if isinstance(content, list) else content or ""
    return {"role": role(given(item.role) or "user"), "content": text}


def responses_response(
    who: Identity, request_id: str, work: GenerateWork, target: Target, collected: Collected
) -> models.ResponsesResponse:
    """The whole answer. One that ran out of tokens is ``completed`` too."""
    said = "".join(collected.choices[0].text)
    text = models.ResponsesOutputText(type="output_text", text=said, annotations=[], logprobs=[])
    message = models.ResponsesOutputMessage(
        type="message", id=f"msg-{request_id}", role="assistant", status="completed", content=[text]
    )
    sampled = work.sampling
    defaults = target.profile.runtime.get("default_sampling") or {}
    return models.ResponsesResponse(
        id=who.id,
        object="response",
        created_at=who.created,
        completed_at=int(time()),
        model=who.model,
        status="completed",
        output=[message],
        usage=responses_usage(collected.completed.usage),
        temperature=_used(sampled.temperature, defaults.get("temperature")),
        top_p=_used(sampled.top_p, defaults.get("top_p")),
        max_output_tokens=sampled.max_tokens,
        **_FIXED,
    )


def _used(asked: float | None, default: object) -> float:
    """A sampling value: the request's, else the profile's, else 1."""
    if asked is not None:
        return asked
    return float(default) if isinstance(default, int | float) else 1.0


_FIXED: Final[dict[str, Any]] = {
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "previous_response_id": None,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "max_tool_calls": None,
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": None,
    "text": models.ResponsesText(format=models.ResponsesTextFormat(type="text")),
    "truncation": "disabled",
    "store": False,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
    "user": None,
}
"""What this surface does not do, in the words of the Responses API."""

"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

import msgspec

from engines.protocol.catalog import Generation as Ability
from engines.protocol.work import GenerateWork
from generated.sie import models
from generated.sie.interfaces import Context

from ..measurements import success_headers
from ..resolution import Target, resolve
from ..settings import Settings
from ..surface import Surface
from . import gates, grammar, logprobs, sampling, timeouts, tools
from .call import admit
from .chat_rules import CHAT_RULES
from .chat_stream import ChatWriter
from .collect import Choice, Collected, collect
from .fields import given, key
from .finish import chat_reason
from .frames import EventFrames
from .identity import Identity, identity
from .messages import conversation
from .rules import check
from .usage import openai_usage


class ChatSurface(Surface):
    """Chat completions, blocking and streaming."""

    async def proxy_chat(
        self, context: Context, body: models.ChatCompletionRequest
    ) -> models.ChatCompletionResponse | EventFrames:
        """Answer a conversation.

        Raises:
            Failure: by contract A.4, until a worker has admitted the work; after that a stream says it in-band.
        """
        check(CHAT_RULES, body)
        target = resolve(self.services, context, body.model)
        settings = self.services.settings
        stream, n = bool(given(body.stream)), given(body.n) or 1
        work = chat_work(context, body, target, settings)
        limits = timeouts.limits(settings, target.profile.runtime, work.sampling.max_tokens)
        generation = await admit(self.services, work, target.route, limits if work.stream else timeouts.whole(limits))
        who = identity("chatcmpl", context.request_id, target)
        if stream:
            options = given(body.stream_options)
            counts = options is not None and bool(given(options.include_usage))
            return EventFrames(generation, ChatWriter(who, n, usage=counts))
        collected = await collect(generation)
        context.response_headers |= success_headers(
            context, generation.answer, collected.completed, since=generation.since
        )
        return chat_response(who, collected, logprobs_asked=bool(given(body.logprobs)))


def chat_work(context: Context, body: models.ChatCompletionRequest, target: Target, settings: Settings) -> GenerateWork:
    """The work item of a chat request that keeps the rules.

    Raises:
        Failure: 400, the model cannot do what is asked, or an image or a schema is refused.
    """
    ability = gates.generation(target)
    limit = sampling.chat_limit(body, settings, ability.max_output_tokens)
    gates.output_fits(limit.tokens, ability, "max_completion_tokens")
    gates.lora_is_known(given(body.lora_adapter), target)
    gates.tools_are_served(given(body.tools) is not None, ability)
    gates.streams(bool(given(body.stream)), ability)
    constraint = grammar.from_response_format(given(body.response_format))
    gates.grammar_is_served(constraint, ability)
    talk = conversation(body.messages)
    gates.images_are_seen(len(talk.images), target, "messages")
    sampled = sampling.chat(body, limit)
    gaps_limited = timeouts.gaps_limited(settings, target.profile.runtime)
    return GenerateWork(
        **target.fields(context),
        routing_key=key(body.routing_key) or key(body.prompt_cache_key),
        messages=talk.messages,
        images=talk.images,
        tools=tools.definitions(given(body.tools)),
        tool_choice=tools.choice(body),
        parallel_tool_calls=given(body.parallel_tool_calls) is not False,
        chat_template_kwargs=template_kwargs(given(body.chat_template_kwargs), ability, target),
        sampling=sampled,
        grammar=constraint,
        lora_adapter=given(body.lora_adapter),
        stream=bool(given(body.stream)) or (sampled.best_of is None and gaps_limited),
    )


def template_kwargs(asked: models.ChatTemplateKwargs | None, ability: Ability, target: Target) -> dict[str, Any]:
    """Options of the chat template: the request's, under those that the profile and the model declare."""
    said = {} if asked is None else msgspec.to_builtins(asked)
    profile = target.profile.runtime.get("chat_template_kwargs") or {}
    return {
        **{name: value for name, value in said.items() if value is not None},
        **profile,
        **ability.chat_template_kwargs,
    }


def chat_response(who: Identity, collected: Collected, *, logprobs_asked: bool) -> models.ChatCompletionResponse:
    """The whole answer."""
    return models.ChatCompletionResponse(
        id=who.id,
        object="chat.completion",
        created=who.created,
        model=who.model,
        choices=[_choice(index, choice, logprobs_asked) for index, choice in enumerate(collected.choices)],
        usage=openai_usage(collected.completed.usage),
        system_fingerprint=who.fingerprint,
    )


def _choice(index: int, choice: Choice, logprobs_asked: bool) -> models.ChatCompletionChoice:
    message = models.ChatCompletionChoiceMessage(role="assistant", content="".join(choice.text))
    if choice.calls:
        message.tool_calls = [call for _, call in sorted(choice.calls.items())]
    return models.ChatCompletionChoice(
        index=index,
        message=message,
        logprobs=logprobs.of_choice(choice.tokens) if logprobs_asked else None,
        finish_reason=chat_reason(choice.finish_reason or "stop", called=bool(choice.calls)),
    )

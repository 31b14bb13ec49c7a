"""POST /v1/chat/completions of this contract."""

from __future__ import annotations

from typing import cast

from engines.protocol.cluster import Timeouts
from generated.inflection import models
from generated.inflection.interfaces import Context
from generated.sie.interfaces import Context as FirstContext

from ..errors import InvalidField
from ..generation import timeouts
from ..generation.call import admit
from ..generation.collect import collect
from ..generation.fields import given
from ..generation.frames import EventFrames
from ..generation.identity import identity
from ..measurements import success_headers
from ..resolution import Target, resolve
from ..services import Services
from ..surface import Surface
from .answer import EchoWriter, response
from .names import own_names
from .options import Options
from .request import Body, as_first, inflection_work, opens_an_answer


class InflectionChat(Surface):
    """Chat completions, blocking and streaming."""

    def __init__(self, services: Services, own: Options) -> None:
        super().__init__(services)
        self.own = own

    async def create_chat_completion(self, context: Context, body: Body) -> models.ChatCompletionResponse | EventFrames:
        """Answer a conversation.

        Raises:
            Failure: until a worker has admitted the work; after that a stream says it in-band.
        """
        first_context = cast("FirstContext", context)
        model = given(body.model) or self._default_model()
        shared = as_first(body, model)
        with own_names(body):
            target = resolve(self.services, first_context, model)
            work = inflection_work(context, body, shared, target, self.services.settings, self.own)
            context.request_id = given(body.request_id) or context.request_id
            limits = self._limits(body, target, work.sampling.max_tokens)
            waits = limits if work.stream else timeouts.whole(limits)
            generation = await admit(self.services, work, target.route, waits)
        who = identity("chatcmpl", context.request_id, target)
        role = "assistant" if opens_an_answer(body) else work.messages[-1]["role"] if work.messages else "assistant"
        echo = _echo(body, role)
        if given(body.stream):
            options = given(body.stream_options)
            counts = options is not None and bool(given(options.include_usage))
            return EventFrames(generation, EchoWriter(who, work.sampling.n, usage=counts, role=role, echo=echo))
        collected = await collect(generation)
        context.response_headers |= success_headers(
            first_context, generation.answer, collected.completed, since=generation.since
        )
        return response(who, collected, logprobs_asked=bool(given(body.logprobs)), role=role, echo=echo)

    def _default_model(self) -> str:
        """The operator's choice, else the only model that generates text.

        Raises:
            InvalidField: there is neither.
        """
        if self.own.default_model is not None:
            return self.own.default_model
        able = [entry.name for entry in self.services.catalog.models() if entry.generation is not None]
        if len(able) != 1:
            raise InvalidField("model", "This server has no default model: name one")
        return able[0]

    def _limits(self, body: Body, target: Target, max_tokens: int) -> Timeouts:
        """The first contract's limits; ``timeout_sec`` is the whole, within what the operator allows."""
        limits = timeouts.limits(self.services.settings, target.profile.runtime, max_tokens)
        asked = given(body.timeout_sec)
        if asked is None:
            return limits
        overall = min(asked, self.services.settings.overall_timeout or asked)
        first = None if limits.first_chunk is None else min(overall, limits.first_chunk)
        return Timeouts(overall=overall, first_chunk=first, inter_chunk=limits.inter_chunk)


def _echo(body: Body, role: str) -> str:
    """The text of the last message, where the answer is to begin with it."""
    last = body.messages[-1]
    if not given(body.echo) or last.role != role:
        return ""
    if isinstance(last.content, list):
        return "".join(given(part.text) or "" for part in last.content)
    return given(last.content) or ""

"""POST /v1/completions."""

from __future__ import annotations

from engines.protocol.work import GenerateWork
from generated.sie import models
from generated.sie.interfaces import Context

from ..measurements import success_headers
from ..resolution import Target, resolve
from ..settings import Settings
from ..surface import Surface
from . import gates, sampling, timeouts
from .call import admit
from .collect import Collected, collect
from .completion_stream import CompletionWriter
from .completions_rules import COMPLETIONS_RULES, prompt_text
from .fields import given
from .finish import text_reason
from .frames import EventFrames
from .identity import Identity, identity
from .rules import check
from .usage import openai_usage


class CompletionsSurface(Surface):
    """Raw continuation of a prompt, blocking and streaming."""

    async def proxy_completions(
        self, context: Context, body: models.CompletionsRequest
    ) -> models.CompletionsResponse | EventFrames:
        """Continue a prompt, without a chat template.

        Raises:
            Failure: by contract A.4, until a worker has admitted the work; after that a stream says it in-band.
        """
        check(COMPLETIONS_RULES, body)
        target = resolve(self.services, context, body.model)
        settings = self.services.settings
        work = completions_work(context, body, target, settings)
        limits = timeouts.limits(settings, target.profile.runtime, work.sampling.max_tokens)
        generation = await admit(self.services, work, target.route, limits if work.stream else timeouts.whole(limits))
        who = identity("cmpl", context.request_id, target)
        if given(body.stream):
            return EventFrames(generation, CompletionWriter(who))
        collected = await collect(generation)
        context.response_headers |= success_headers(
            context, generation.answer, collected.completed, since=generation.since
        )
        return completions_response(who, collected)


def completions_work(
    context: Context, body: models.CompletionsRequest, target: Target, settings: Settings
) -> GenerateWork:
    """The work item of a completions request that keeps the rules.

    Raises:
        Failure: 400, the model cannot do what is asked.
    """
    ability = gates.generation(target)
    limit = sampling.Limit.of(given(body.max_tokens), sampling.TEXT_MAX_TOKENS, ability.max_output_tokens)
    gates.output_fits(limit.tokens, ability, "max_tokens")
    gates.streams(bool(given(body.stream)), ability)
    return GenerateWork(
        **target.fields(context),
        prompt=prompt_text(body),
        sampling=sampling.completions(body, limit),
        stream=bool(given(body.stream)) or timeouts.gaps_limited(settings, target.profile.runtime),
    )


def completions_response(who: Identity, collected: Collected) -> models.CompletionsResponse:
    """The whole answer."""
    choice = collected.choices[0]
    return models.CompletionsResponse(
        id=who.id,
        object="text_completion",
        created=who.created,
        model=who.model,
        choices=[
            models.CompletionsChoice(
                text="".join(choice.text), index=0, finish_reason=text_reason(choice.finish_reason or "stop")
            )
        ],
        usage=openai_usage(collected.completed.usage),
        system_fingerprint=who.fingerprint,
    )

"""POST /v1/generate/{model}."""

from __future__ import annotations

from typing import Any, Final

from engines.protocol.events import Completed
from engines.protocol.work import GenerateWork, Image
from generated.sie import models
from generated.sie.interfaces import Context

from ..measurements import success_headers
from ..resolution import Target, resolve
from ..surface import Surface
from . import gates, grammar, images, sampling, timeouts
from .call import admit
from .chat import template_kwargs
from .collect import Collected, collect
from .fields import given, key
from .frames import EventFrames
from .generate_rules import GENERATE_RULES, safe_id
from .generate_stream import GenerateWriter
from .rules import check
from .usage import native_usage

_NAMES: Final = {
    "messages": "prompt",
    "max_tokens": "max_new_tokens",
    "min_tokens": "options.default_sampling.min_new_tokens",
    "top_k": "options.default_sampling.top_k",
}


class GenerateSurface(Surface):
    """Native generation, blocking and streaming."""

    async def proxy_generate(
        self, context: Context, model: str, body: models.GenerateRequest
    ) -> models.GenerateResponse | EventFrames:
        """Continue a prompt as it is; with images it becomes one turn of the model's chat template.

        Raises:
            Failure: by contract A.4, until a worker has admitted the work; after that a stream says it in-band.
        """
        name = safe_id(model)
        check(GENERATE_RULES, body)
        target = resolve(self.services, context, name, pool_param="pool")
        work = generate_work(context, body, target)
        limits = timeouts.limits(
            self.services.settings, target.profile.runtime, body.max_new_tokens, given(body.options)
        )
        generation = await admit(self.services, work, target.route, limits, _NAMES)
        if given(body.stream):
            return EventFrames(generation, GenerateWriter(context.request_id, generation.since))
        collected = await collect(generation)
        context.response_headers |= success_headers(
            context, generation.answer, collected.completed, since=generation.since
        )
        return generate_response(target.model.name, context.request_id, collected)


def generate_work(context: Context, body: models.GenerateRequest, target: Target) -> GenerateWork:
    """The work item of a native request that keeps the rules.

    A blocking answer is gathered from chunks too: it tells the time to the first and between the others.

    Raises:
        Failure: 400, the model cannot do what is asked, or an image or a schema is refused.
    """
    ability = gates.generation(target)
    gates.output_fits(body.max_new_tokens, ability, "max_new_tokens")
    gates.lora_is_known(given(body.lora_adapter), target)
    gates.streams(bool(given(body.stream)), ability)
    constraint = grammar.from_native(given(body.grammar))
    gates.grammar_is_served(constraint, ability)
    pictures = _images(given(body.images) or [])
    gates.images_are_seen(len(pictures), target, "images")
    work = GenerateWork(
        **target.fields(context),
        routing_key=key(body.routing_key) or key(body.prompt_cache_key),
        images=pictures,
        sampling=sampling.generate(body),
        grammar=constraint,
        lora_adapter=given(body.lora_adapter),
        stream=True,
    )
    if pictures:
        work.messages = [_turn(body.prompt, len(pictures))]
        work.chat_template_kwargs = template_kwargs(None, ability, target)
    else:
        work.prompt = body.prompt
    return work


def _images(given_images: list[models.NativeGenerateImage]) -> list[Image]:
    return [
        Image(images.decode(image.data, f"images[{index}].data"), given(image.format), f"images[{index}].data")
        for index, image in enumerate(given_images)
    ]


def _turn(prompt: str, count: int) -> dict[str, Any]:
    """One user turn: the images, then the prompt."""
    parts: list[dict[str, Any]] = [{"type": "image", "index": index} for index in range(count)]
    return {"role": "user", "content": [*parts, {"type": "text", "text": prompt}]}


def generate_response(model: str, request_id: str, collected: Collected) -> models.GenerateResponse:
    """The whole answer, with the worker's own finish reason and times."""
    choice, completed = collected.choices[0], collected.completed
    answer = models.GenerateResponse(
        model=model,
        text="".join(choice.text),
        finish_reason=choice.finish_reason or "stop",
        attempt_id=completed.attempt_id or request_id,
        usage=native_usage(completed.usage),
    )
    if completed.timing.ttft_ms > 0:
        answer.ttft_ms = completed.timing.ttft_ms
        if (pace := time_per_token(completed)) is not None:
            answer.tpot_ms = pace
    return answer


def time_per_token(completed: Completed) -> float | None:
    """Milliseconds per token after the first; ``None`` for a single token."""
    later = completed.usage.completion_tokens - 1
    if later < 1:
        return None
    return round(max(0.0, completed.timing.total_ms - completed.timing.ttft_ms) / later, 3)

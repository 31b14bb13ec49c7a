"""One call to a worker: from a model argument to the completed work."""

from __future__ import annotations

from time import perf_counter
from typing import Literal

from engines.protocol.cluster import DispatchError, Timeouts
from engines.protocol.events import Completed, Failed
from engines.protocol.work import Work
from generated.sie.interfaces import Context

from .. import resolution
from ..errors import Failure, InvalidInput, from_dispatch, from_failed
from ..measurements import success_headers
from ..resolution import Target
from ..services import Services

Task = Literal["encode", "score", "extract", "transcribe"]


def resolve(services: Services, context: Context, name: str, task: Task, *, profile: str | None = None) -> Target:
    """Resolve a model argument and the routing headers; ``profile`` overrides the one that the name selects.

    Raises:
        Failure: what ``resolution.resolve`` raises; 400 when the model lacks the profile or does not do the task.
    """
    target = resolution.resolve(services, context, name)
    model = target.model
    if profile is not None and profile != target.profile.name:
        if profile not in model.profiles:
            raise InvalidInput(f"Model '{model.name}' has no profile '{profile}'", "options.profile")
        bundle, separator, _ = name.rpartition(":/")
        target = resolution.resolve(services, context, f"{bundle}{separator}{model.name}:{profile}")
    if task not in model.tasks:
        raise InvalidInput(f"Model '{model.name}' does not support {task}", "model")
    return target


async def run(services: Services, context: Context, work: Work, target: Target) -> Completed:
    """Hand work over, wait for its end, and set the headers of a success.

    Raises:
        Failure: by contract A.5.
    """
    submitted = perf_counter()
    try:
        answer = await services.dispatcher.submit(work, target.route, Timeouts(services.settings.request_timeout))
    except DispatchError as error:
        raise from_dispatch(error) from None
    try:
        async for event in answer:
            if isinstance(event, Failed):
                raise from_failed(event, native=True)
            if isinstance(event, Completed):
                context.response_headers.update(success_headers(context, answer, event, since=submitted))
                return event
    finally:
        await answer.aclose()
    raise Failure(504, "transport_failure", "Result channel closed", native="GATEWAY_TIMEOUT")


__all__ = ["Target", "Task", "resolve", "run"]

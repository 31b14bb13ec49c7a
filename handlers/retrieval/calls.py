"""One call to a worker: from a model argument to the completed work."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

from engines.protocol.catalog import ModelEntry, Profile
from engines.protocol.cluster import DispatchError, Route, Timeouts
from engines.protocol.events import Completed, Failed
from engines.protocol.work import Work
from generated.sie.interfaces import Context

from ..errors import Failure, InvalidInput, from_catalog, from_dispatch, from_failed
from ..services import Services

Task = Literal["encode", "score", "extract", "transcribe"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where work goes: a model, one of its profiles, the bundle that runs it, the pool that takes it."""

    model: ModelEntry
    profile: Profile
    bundle: str
    route: Route

    def fields(self, context: Context) -> dict[str, Any]:
        """The fields of a work item that come from here and from the request's headers."""
        return {
            "request_id": context.request_id,
            "model": self.model.name,
            "profile": self.profile.name,
            "bundle": self.bundle,
            "pool": self.route.pool,
            "traceparent": context.header("traceparent"),
            "tracestate": context.header("tracestate"),
        }


def resolve(services: Services, context: Context, name: str, task: Task, *, profile: str | None = None) -> Target:
    """Resolve a model argument; ``profile`` overrides the one that the name selects.

    Raises:
        Failure: 404 or 409 by the catalog; 400 when the model lacks the profile or does not do the task.
    """
    try:
        found = services.catalog.resolve(name)
        if profile is not None and profile != found.profile.name:
            if profile not in found.model.profiles:
                raise InvalidInput(f"Model '{found.model.name}' has no profile '{profile}'", "options.profile")
            bundle, separator, _ = name.rpartition(":/")
            found = services.catalog.resolve(f"{bundle}{separator}{found.model.name}:{profile}")
    except LookupError as error:
        raise from_catalog(error) from None
    if task not in found.model.tasks:
        raise InvalidInput(f"Model '{found.model.name}' does not support {task}", "model")
    return Target(found.model, found.profile, found.bundle, Route())


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
                return event
    finally:
        await answer.aclose()
    raise Failure(504, "transport_failure", "Result channel closed")

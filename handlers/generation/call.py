"""One generation on a worker: handing it over, waiting for its admission, following its events to the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from time import perf_counter
from typing import Final

from engines.protocol.catalog import variant
from engines.protocol.cluster import Answer, DispatchError, Route, Timeouts
from engines.protocol.events import Admitted, AnyEvent, Completed, Delta, Failed, FailureCode
from engines.protocol.work import GenerateWork

from ..errors import Capacity, Failure, from_dispatch, from_failed
from ..services import Services

NO_NAMES: Final[Mapping[str, str]] = {}
_ABORTED: Final[dict[str, tuple[FailureCode, str]]] = {
    "cancelled": ("cancelled", "Generation was cancelled"),
    "error": ("inference_error", "Generation failed"),
}


class Generation:
    """Work that a worker has taken. Iterating yields its deltas and ends with ``Completed``; failures are raised.

    ``since`` is the ``perf_counter`` value at submission, ``admitted`` the worker's first event, ``choices`` how many
    choices were asked for.
    """

    def __init__(
        self,
        answer: Answer,
        events: AsyncIterator[AnyEvent],
        admitted: Admitted,
        since: float,
        choices: int = 1,
        names: Mapping[str, str] = NO_NAMES,
    ) -> None:
        self.answer = answer
        self._names = names
        self.choices = choices
        self.admitted = admitted
        self.since = since
        self._events = events

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> Delta | Completed:
        """The next event.

        Raises:
            Failure: the work failed, or its answer ended without an end.
        """
        async for event in self._events:
            if isinstance(event, Delta):
                if event.choice >= self.choices:
                    raise Failure(500, "malformed_worker_response", f"The worker sent choice {event.choice}")
                if event.finish_reason in _ABORTED:
                    code, message = _ABORTED[event.finish_reason]
                    raise from_failed(Failed(request_id=event.request_id, code=code, message=message))
                return event
            if isinstance(event, Completed):
                return event
            if isinstance(event, Failed):
                raise _failure(event, self._names)
        raise Failure(504, "transport_failure", "Result channel closed")

    async def aclose(self) -> None:
        """Leave. Work that has not ended is cancelled on its worker."""
        await self.answer.aclose()


async def admit(
    services: Services, work: GenerateWork, route: Route, timeouts: Timeouts, names: Mapping[str, str] = NO_NAMES
) -> Generation:
    """Hand work over and wait until a worker has taken it: until then every fault is still a status.

    ``names`` are the caller's names of fields that the work calls otherwise, for errors.

    Raises:
        Failure: the queue or the worker refused the work (contract A.4).
    """
    since = perf_counter()
    try:
        answer = await services.dispatcher.submit(work, route, timeouts)
    except DispatchError as error:
        raise from_dispatch(error) from None
    try:
        events = aiter(answer)
        async for event in events:
            if isinstance(event, Admitted):
                return Generation(answer, events, event, since, work.sampling.n, names)
            if isinstance(event, Failed):
                raise _refusal(services, work, event, names)
            raise Failure(500, "malformed_worker_response", f"The worker sent {type(event).__name__} before admission")
        raise Failure(504, "transport_failure", "Result channel closed")
    except BaseException:
        await answer.aclose()
        raise


def _refusal(services: Services, work: GenerateWork, event: Failed, names: Mapping[str, str]) -> Failure:
    """Why work was not admitted. Time that ran out while the model was still loading is worth a retry."""
    name = variant(work.model, work.profile)
    if event.code == "overall_timeout" and services.cluster.model_status(name).state == "loading":
        return Capacity(f"Model '{name}' is still loading", 5, code="MODEL_LOADING")
    return _failure(event, names)


def _failure(event: Failed, names: Mapping[str, str]) -> Failure:
    failure = from_failed(event)
    failure.param = names.get(failure.param or "", failure.param)
    return failure

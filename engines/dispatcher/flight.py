"""One request on its way: what was asked, where it waits now, and its answer."""

from __future__ import annotations

from engines.bus.subjects import Direct, Lane
from engines.protocol.catalog import variant
from engines.protocol.cluster import Route
from engines.protocol.work import GenerateWork, Work

from .answer import PendingAnswer
from .routing import Place


class Flight:
    """``sequence`` is the message's number in ``stream``, ``None`` until the queue has confirmed it.

    ``payload`` are the headers that lead to the work when it is too large for a message.
    """

    __slots__ = ("answer", "lane", "payload", "refusals", "route", "sequence", "work", "worker")

    def __init__(self, work: Work, route: Route, place: Place, answer: PendingAnswer) -> None:
        self.work = work
        self.route = route
        self.lane: Lane = place.lane
        self.worker = place.worker
        self.answer = answer
        self.sequence: int | None = None
        self.payload: dict[str, str] | None = None
        self.refusals = 0

    @property
    def stream(self) -> str:
        return self.lane.stream if self.worker is None else Direct(self.worker).stream

    @property
    def group(self) -> tuple[str, str, str] | None:
        """Model, profile and pool of a generation."""
        work = self.work
        return (work.model, work.profile, self.lane.pool) if isinstance(work, GenerateWork) else None


def name_of(work: Work) -> str:
    """The model as heart-beats name it."""
    return variant(work.model, work.profile)

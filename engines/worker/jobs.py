"""The requests at work, and those that were cancelled before they came."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Literal

from engines.bus.pull import Delivery
from engines.protocol.work import Work

REMEMBER_CANCELLED = 10_000

Ending = Literal["cancel", "deadline", "drain"]


class Job:
    """One request at work: its task, its latest delivery, and why it is being ended, if it is.

    ``age`` is how many seconds ago the work was published, as it came; ``fetch_ms`` what it took to fetch a body that
    was too large for its message.
    """

    def __init__(self, work: Work, delivery: Delivery, age: float = 0.0, fetch_ms: float = 0.0) -> None:
        self.work = work
        self.age = age
        self.fetch_ms = fetch_ms
        self.expires = time.monotonic() + work.time_left - age if work.time_left else None
        self.delivery: Delivery | None = delivery
        self.task: asyncio.Task[None] | None = None
        self.ending: Ending | None = None
        self._begun = False

    @property
    def time_left(self) -> float | None:
        """Seconds in which an answer is still of use; ``None``: no limit."""
        return None if self.expires is None else self.expires - time.monotonic()

    def wait_for_load(self) -> None:
        """The model is not there: its load may take a while more."""
        if self.expires is not None:
            self.expires += self.work.load_patience

    def loaded(self) -> None:
        """The model is there at last: the limits count from now."""
        if self.expires is not None and self.work.load_patience:
            self.expires = time.monotonic() + self.work.time_left

    def begin(self) -> None:
        """The task takes its first step.

        Raises:
            CancelledError: the job was ended before.
        """
        self._begun = True
        if self.ending is not None:
            raise asyncio.CancelledError

    def end(self, reason: Ending) -> None:
        """Cancel the task, or have it end as it begins; the first reason stays."""
        self.ending = self.ending or reason
        # a task that is cancelled before its first step never enters its body, and would clean up nothing
        if self._begun and self.task is not None:
            self.task.cancel()


class Jobs:
    """All jobs of one worker, by request id."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._cancelled: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def get(self, request_id: str) -> Job | None:
        return self._jobs.get(request_id)

    def add(self, job: Job) -> None:
        self._jobs[job.work.request_id] = job

    def remove(self, job: Job) -> None:
        del self._jobs[job.work.request_id]

    def cancel(self, names: Iterable[str]) -> None:
        """End what is at work, remember the rest. A name is a request id, or ``id/attempt`` for one publication."""
        for name in names:
            request_id, _, attempt = name.partition("/")
            job = self._jobs.get(request_id)
            if job is None:
                self._cancelled[name] = None
                if len(self._cancelled) > REMEMBER_CANCELLED:
                    self._cancelled.popitem(last=False)
            elif not attempt or job.work.attempt == int(attempt):
                job.end("cancel")

    def is_cancelled(self, work: Work) -> bool:
        """Whether nobody wants this work any more."""
        both = (work.request_id, f"{work.request_id}/{work.attempt}")
        return any(name in self._cancelled for name in both)

    def expire(self) -> None:
        """End jobs whose time has run out: their gateway may have gone and can cancel nothing."""
        for job in self:
            if job.time_left is not None and job.time_left < 0.0:
                job.end("deadline")

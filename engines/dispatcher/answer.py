"""The events of one request, put in order: a state machine that knows nothing of the bus.

A request may be attempted more than once (its worker died, its heart-beats came late). Until an attempt has produced
output, any attempt may still answer; the first that does owns the answer, and events of others are dropped. When the
work has been published anew, attempts at earlier publications are heard no more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from engines.protocol.cluster import Timeouts
from engines.protocol.events import Admitted, AnyEvent, Completed, Delta, Failed, FailureCode, Missed

GAP_PATIENCE = 3.0
"""Seconds in which a worker has to send again what was lost on the way."""
SOON = 0.25
FIRST_LOOK = 1.0
LAST_LOOK = 16.0
"""Seconds of silence after which an answer is asked for again: when events were lost, at first, and at most."""
LAST = (Completed, Failed)
GIVEN_UP = "-given-up"
BUFFER = 256
"""Events that may wait for a slow reader; what comes then is joined to the last one of its choice."""


class PendingAnswer:
    """An ``Answer`` fed by the dispatcher.

    ``ended`` is called once: with True when the work may still be running. ``patience`` is for a model that has to be
    loaded first: until admission the answer may take that many seconds more, and its limits count from there.
    ``late`` is asked when there was no output in time, and says whether the work is being done elsewhere now;
    ``loading``, how many seconds more it may take because its model is being loaded again.
    """

    def __init__(
        self,
        request_id: str,
        timeouts: Timeouts,
        ended: Callable[[PendingAnswer, bool], None],
        patience: float = 0.0,
        late: Callable[[PendingAnswer], bool] = lambda _: False,
        loading: Callable[[PendingAnswer], float] = lambda _: 0.0,
    ) -> None:
        self.request_id = request_id
        self.publish_ms = 0.0
        self.attempt = 0
        """Publications before the current one."""
        self.direct = False
        """Whether the work waits for one worker alone, which then has to begin in time."""
        self._late = late
        self._loading = loading
        self._timeouts = timeouts
        self._ended = ended
        self._patience = patience
        self._reloaded = False
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._events: deque[AnyEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._next_seq: dict[str, int] = {}
        self._early: dict[str, dict[int, AnyEvent]] = {}
        self._gap_since: float | None = None
        self._fetching = 0
        self._given_up: Failed | None = None
        self._look_after = FIRST_LOOK
        self._look_at = self._started + FIRST_LOOK
        self._workers: dict[str, str] = {}
        self._owner: str | None = None
        self._restarted = self._started
        self._told = False
        self._admitted_at: float | None = None
        self._last_output: float | None = None
        self._done = False

    @property
    def begun(self) -> bool:
        """Whether output has arrived, so that another attempt could no longer take over."""
        return self._owner is not None

    @property
    def attempts(self) -> int:
        """How many attempts have answered so far."""
        return len(self._next_seq)

    @property
    def done(self) -> bool:
        return self._done

    @property
    def age(self) -> float:
        """Seconds since it was asked for."""
        return self._loop.time() - self._started

    @property
    def time_left(self) -> float:
        """Seconds in which an answer is still of use."""
        return max(0.0, self._overall() - self._loop.time())

    def restart(self) -> None:
        """The work is published anew: nobody has admitted it yet."""
        self.attempt += 1
        self.direct = False
        self._admitted_at = None
        self._restarted = self._loop.time()
        self._early.clear()
        self._gap_closed()

    def is_stale(self, attempt: str) -> bool:
        """Whether a worker's attempt was at an earlier publication."""
        return self.attempt > 0 and _number(attempt) < self.attempt

    def feed(self, event: AnyEvent) -> None:
        """Take one event from the bus: drop duplicates and other attempts, hold what came before its turn."""
        attempt = event.attempt_id
        if self._done or self._owner not in (None, attempt) or self.is_stale(attempt):
            return
        expected = self._next_seq.get(attempt, 0)
        if self._fetching and isinstance(event, Failed):
            # what is being fetched is the end; if it was said to be lost meanwhile, it was not
            if attempt.endswith(GIVEN_UP):
                self._given_up = event  # no worker has said it, so none says it again
            return
        if event.seq < expected:
            return
        if event.seq > expected:
            self._early.setdefault(attempt, {})[event.seq] = event
            if self._gap_since is None:
                self._gap_since = self._loop.time()
                self.look()
            return
        self._take(event, attempt)
        if self._gap_since is None:
            self._look_later()
        else:
            held = self._early.get(attempt, {})
            while (following := held.pop(self._next_seq[attempt], None)) is not None:
                self._take(following, attempt)
            if not held:
                self._gap_since = None

    def missed(self) -> Missed | None:
        """What to ask for again, if it is time to: events are missing, or nothing has come for a while.

        An answer that could not be completed that way fails.
        """
        now = self._loop.time()
        if self._done or self._fetching or now < self._look_at:
            return None
        if self._gap_since is not None and now - self._gap_since > GAP_PATIENCE:
            self.fail("transport_failure", "events of the worker's answer were lost", retry_after=1)
            return None
        if self._gap_since is None and (given_up := self._given_up) is not None:
            self._given_up = None
            self.feed(given_up)
            return None
        if self._gap_since is None:
            self._look_after = min(LAST_LOOK, self._look_after * 2.0)
        self._look_at = now + self._look_after
        seen = self._next_seq if self._owner is None else {self._owner: self._next_seq[self._owner]}
        return Missed(self.request_id, seen, self._owner is not None)

    def look(self) -> None:
        """Ask again soon: the connection was lost, and events with it."""
        self._look_after = SOON
        self._look_at = self._loop.time()

    def fetch_begins(self) -> None:
        """Its end was too large for a message and is being fetched, or waits for that: nothing is asked for again, and
        only the limit of the whole answer counts meanwhile."""
        self._fetching += 1

    def fetch_ended(self) -> None:
        self._fetching -= 1
        if self._gap_since is not None:
            self._gap_since = self._loop.time()  # what is missing could not be asked for until now
        self.look()
        self._wake()

    @property
    def worker(self) -> str | None:
        """The worker whose attempt owns the answer."""
        return None if self._owner is None else self._workers.get(self._owner)

    @property
    def incomplete(self) -> bool:
        """Whether events have come before their turn."""
        return self._gap_since is not None

    def _take(self, event: AnyEvent, attempt: str) -> None:
        """Take the event whose turn it is; nothing follows the last."""
        if self._done:
            return
        self._next_seq[attempt] = event.seq + 1
        now = self._loop.time()
        if isinstance(event, Admitted):
            self._workers[attempt] = event.worker
            if self._admitted_at is not None:
                return
            self._admitted_at = now
            if self._told:
                return
            self._told = True
        else:
            self._owner = attempt
            self._last_output = now
        self._put(event, final=isinstance(event, LAST), running=False)

    def lose_worker(self, worker: str, reason: str) -> None:
        """A worker is gone. An answer that it has begun fails; any other waits for the next attempt."""
        if self._owner is None:
            self._forget_early(worker)
        elif self._workers.get(self._owner) == worker:
            self.fail("transport_failure", f"worker {worker} {reason} before the answer was complete")

    def _forget_early(self, worker: str) -> None:
        """Nobody sends what is missing before these events; whoever else they are of is asked for them again."""
        for attempt in list(self._early):
            if self._workers.get(attempt, worker) == worker:
                del self._early[attempt]
        if self._gap_since is not None and not any(self._early.values()):
            self._gap_closed()

    def _gap_closed(self) -> None:
        self._gap_since = None
        self._look_later()

    def _look_later(self) -> None:
        self._look_after = FIRST_LOOK
        self._look_at = self._loop.time() + FIRST_LOOK

    def fail(self, code: FailureCode, message: str, retry_after: float | None = None) -> None:
        """End the answer from this side."""
        if not self._done:
            event = Failed(request_id=self.request_id, code=code, message=message, retry_after=retry_after)
            self._put(event, final=True, running=True)

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        return self

    async def __anext__(self) -> AnyEvent:
        while not self._events:
            if self._done:
                raise StopAsyncIteration
            at, code, message = self._limit()
            self._waiter = self._loop.create_future()
            timer = self._loop.call_at(at, self._out_of_time, code, message)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        return self._events.popleft()

    async def aclose(self) -> None:
        """Leave; the work is cancelled on its worker if it has not ended."""
        self._events.clear()
        if not self._done:
            self._done = True
            self._wake()
            self._ended(self, True)

    def _put(self, event: AnyEvent, *, final: bool, running: bool) -> None:
        if len(self._events) < BUFFER or not isinstance(event, Delta) or not self._join(event):
            self._events.append(event)
        self._wake()
        if final:
            self._done = True
            self._ended(self, running)

    def _join(self, event: Delta) -> bool:
        """Add to what waits already for the same choice; texts of different choices have no order."""
        for waiting in reversed(self._events):
            if isinstance(waiting, Delta) and waiting.choice == event.choice:
                _add(waiting, event)
                return True
        return False

    def _out_of_time(self, code: FailureCode, message: str) -> None:
        if self._fetching and code != "overall_timeout":
            self._wake()
        elif (
            not self.begun
            and not self._done
            and ((code == "first_chunk_timeout" and self._late(self)) or self._waits_for_load())
        ):
            self._wake()  # to wait by the new limits
        else:
            self.fail(code, message)

    def _waits_for_load(self) -> bool:
        """Whether the worker or the engine that had admitted it is gone, and the model is loaded again: once."""
        waited = self._reloaded or (self._patience and self._admitted_at is None)
        if waited or not (more := self._loading(self)):
            return False
        self._reloaded = True
        self._patience = more
        self._admitted_at = None
        self._restarted = self._loop.time()
        return True

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _limit(self) -> tuple[float, FailureCode, str]:
        """When to give up next, and what to say then."""
        limits = self._timeouts
        overall = self._overall()
        if self._fetching:
            return overall, "overall_timeout", f"no complete answer within {limits.overall:g} s"
        if self._last_output is not None and limits.inter_chunk is not None:
            at = self._last_output + limits.inter_chunk
            if at < overall:
                return at, "inter_chunk_timeout", f"no further output within {limits.inter_chunk:g} s"
        admitted_at = self._restarted if self.direct and self._admitted_at is None else self._admitted_at
        if self._last_output is None and admitted_at is not None and limits.first_chunk is not None:
            at = admitted_at + limits.first_chunk
            if at < overall:
                return at, "first_chunk_timeout", f"no output within {limits.first_chunk:g} s"
        return overall, "overall_timeout", f"no complete answer within {limits.overall:g} s"

    def _overall(self) -> float:
        """When the answer as a whole is too late."""
        overall = self._started + self._timeouts.overall
        if self._patience and self._admitted_at is not None:
            return self._admitted_at + self._timeouts.overall
        return overall + self._patience if self._last_output is None else overall


def given_up(publication: int) -> str:
    """What stands for an attempt in the failure of work that was delivered as often as it may be."""
    return f"{publication}{GIVEN_UP}"


def _number(attempt: str) -> int:
    """The publication that a worker's attempt was at."""
    number = attempt.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def _add(first: Delta, then: Delta) -> None:
    """Make one delta of two."""
    first.text += then.text
    first.reasoning += then.reasoning
    first.tokens += then.tokens
    if then.logprobs is not None:
        first.logprobs = [*(first.logprobs or ()), *then.logprobs]
    first.tool_calls = [*first.tool_calls, *then.tool_calls]
    first.finish_reason = then.finish_reason or first.finish_reason

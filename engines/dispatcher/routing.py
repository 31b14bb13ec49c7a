"""Which worker work goes to: those with the model loaded, the least loaded of them, one and the same for one key.

Work without a key waits in the queue of a lane, from which its workers take what they have room for: that alone sends
most to those with least to do. It goes to one worker's own queue only for a reason: a key, or a lane in which some
workers have the model loaded and others would first have to load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from engines.bus.subjects import Lane
from engines.protocol.cluster import WorkerStatus


class Place(NamedTuple):
    """Where work is published: in the queue of ``worker``, else in that of the lane."""

    lane: Lane
    worker: str | None = None


class Fit(NamedTuple):
    """The workers that can do some work, in the order of their names; ``loaded`` have its model loaded already."""

    workers: tuple[WorkerStatus, ...]
    loaded: tuple[WorkerStatus, ...]


def fit(workers: Iterable[WorkerStatus], model: str) -> Fit:
    """Sort the workers that can do the work."""
    able = tuple(sorted(workers, key=lambda worker: worker.name))
    loaded = tuple(w for w in able if any(m.name == model and m.state == "loaded" for m in w.models))
    return Fit(able, loaded)


def place(fit: Fit, key: str | None, model: str, sent: Callable[[str], int]) -> Place | None:
    """Choose, or ``None`` when there is nobody. ``sent``: what went to a worker since it last told its load."""
    if not fit.workers:
        return None

    def load(worker: WorkerStatus) -> tuple[int, str]:
        return worker.queue_depth + worker.inflight_batches + sent(worker.name), worker.name

    best = min(fit.loaded or fit.workers, key=load)
    if len(fit.workers) == 1:
        return Place(lane_of(best))
    if key is not None and fit.loaded:
        names = [worker.name for worker in fit.loaded]
        chosen = fit.loaded[rendezvous(f"{model}\0{key}", names)]
    elif fit.loaded and _beside(best, fit.loaded) < _beside(best, fit.workers):
        chosen = best
    else:
        return Place(lane_of(best))
    # a worker without room is not waited for
    return Place(lane_of(chosen), chosen.name if chosen.room > sent(chosen.name) else None)


def rendezvous(key: str, names: Sequence[str]) -> int:
    """Index of the name with the highest weight for ``key``: the same for all gateways, whatever the order of
    ``names``; when one of n names goes or comes, 1/n of the keys change theirs (Thaler and Ravishankar, 1998)."""
    prefix = blake2b(key.encode(), digest_size=16).digest()

    def weight(index: int) -> bytes:
        return blake2b(names[index].encode(), digest_size=8, key=prefix).digest()

    return max(range(len(names)), key=weight)


def _beside(worker: WorkerStatus, others: Iterable[WorkerStatus]) -> int:
    """How many of ``others`` take from the same queue."""
    return sum(lane_of(other) == lane_of(worker) for other in others)


def lane_of(worker: WorkerStatus) -> Lane:
    return Lane(worker.pool, worker.machine_profile, worker.bundle)

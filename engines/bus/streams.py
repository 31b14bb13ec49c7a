"""Creating what the bus keeps: work queues and their consumers, dead letters, large payloads. All of it idempotent."""

from __future__ import annotations

from datetime import datetime

from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    ObjectStoreConfig,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import BadRequestError, NotFoundError
from nats.js.object_store import ObjectStore

from .settings import BusSettings
from .subjects import DEAD_LETTER, DEAD_LETTERS, PAYLOADS, Direct, Lane, Queue, pool_subjects

MAX_AGE = 1800.0
DUPLICATE_WINDOW = 10.0
"""Seconds in which a request id published twice counts once; the server remembers every id that long."""
PAYLOAD_AGE = 600.0
MAX_ACK_PENDING = 65_536
DIRECT_PENDING = 1024
"""Work waiting for one worker before more goes to all of its lane."""
NO_LIMIT = -1
"""Of bytes: the server sets limits aside when a stream is made, which it could not do for every worker."""
LETTER_AGE = 24 * 3600.0
LETTER_BYTES = 64 << 20


async def ensure_stream(js: JetStreamContext, lane: Lane, settings: BusSettings) -> datetime | None:
    """Create the work queue of the lane's pool, or bring its limits up to date; return when it was created."""
    subjects = pool_subjects(lane.pool)
    return await _ensure(js, _queue(lane.stream, subjects, settings.max_pending, settings.max_bytes, settings))


async def ensure_direct(js: JetStreamContext, direct: Direct, settings: BusSettings) -> None:
    """Create the work queue of one worker."""
    await _ensure(js, _queue(direct.stream, direct.filter, DIRECT_PENDING, NO_LIMIT, settings))


async def ensure_consumer(js: JetStreamContext, queue: Queue, settings: BusSettings) -> None:
    """Create the pull consumer of a queue; all workers of a lane share its one.

    What has been delivered ``max_deliver`` times stays in the stream, and the server tells of it (``GIVEN_UP``).
    """
    config = ConsumerConfig(
        durable_name=queue.consumer,
        filter_subject=queue.filter,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=settings.ack_wait,
        max_deliver=settings.max_deliver,
        max_ack_pending=MAX_ACK_PENDING,
        mem_storage=True,
        num_replicas=settings.replicas,
    )
    await js.add_consumer(queue.stream, config)


async def ensure_dead_letters(js: JetStreamContext, settings: BusSettings) -> None:
    """Create the stream of dead letters; the oldest go first when it is full."""
    config = StreamConfig(
        name=DEAD_LETTERS,
        subjects=[f"{DEAD_LETTER}.*"],
        storage=StorageType.MEMORY if settings.memory_only else StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_age=LETTER_AGE,
        max_bytes=LETTER_BYTES,
        num_replicas=settings.replicas,
    )
    await _ensure(js, config)


def _queue(name: str, subject: str, most: int, most_bytes: int, settings: BusSettings) -> StreamConfig:
    return StreamConfig(
        name=name,
        subjects=[subject],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.MEMORY,
        discard=DiscardPolicy.NEW,
        max_age=MAX_AGE,
        max_msgs=most,
        max_bytes=most_bytes,
        duplicate_window=DUPLICATE_WINDOW,
        num_replicas=settings.replicas,
    )


async def _ensure(js: JetStreamContext, config: StreamConfig) -> datetime | None:
    try:
        info = await js.add_stream(config)
    except BadRequestError as refused:
        try:
            info = await js.update_stream(config)
        except NotFoundError:
            # it is not there with other limits: the servers cannot hold it
            raise refused from None
    created: datetime | None = info.created
    return created


async def payload_bucket(js: JetStreamContext, settings: BusSettings) -> ObjectStore:
    """The bucket for payloads larger than one message; what nobody deletes goes by age."""
    try:
        return await js.object_store(PAYLOADS)
    except NotFoundError:
        config = ObjectStoreConfig(
            bucket=PAYLOADS, storage=StorageType.MEMORY, ttl=PAYLOAD_AGE, replicas=settings.replicas
        )
        return await js.create_object_store(PAYLOADS, config=config)

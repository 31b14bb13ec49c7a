"""Creating the work queue of a pool, the consumer of a lane and the bucket for large payloads. All of it idempotent."""

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
from .subjects import PAYLOADS, Lane, pool_subjects

MAX_AGE = 1800.0
DUPLICATE_WINDOW = 10.0
"""Seconds in which a request id published twice counts once; the server remembers every id that long."""
PAYLOAD_AGE = 600.0
MAX_ACK_PENDING = 65_536


async def ensure_stream(js: JetStreamContext, lane: Lane, settings: BusSettings) -> datetime | None:
    """Create the work queue of the lane's pool, or bring its limits up to date; return when it was created."""
    config = StreamConfig(
        name=lane.stream,
        subjects=[pool_subjects(lane.pool)],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.MEMORY,
        discard=DiscardPolicy.NEW,
        max_age=MAX_AGE,
        max_msgs=settings.max_pending,
        max_bytes=settings.max_bytes,
        duplicate_window=DUPLICATE_WINDOW,
        num_replicas=settings.replicas,
    )
    try:
        info = await js.add_stream(config)
    except BadRequestError:
        info = await js.update_stream(config)
    created: datetime | None = info.created
    return created


async def ensure_consumer(js: JetStreamContext, lane: Lane, settings: BusSettings) -> None:
    """Create the shared pull consumer of a lane. Tries are counted by the worker, which can say why it gave up."""
    config = ConsumerConfig(
        durable_name=lane.consumer,
        filter_subject=lane.filter,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=settings.ack_wait,
        max_deliver=-1,
        max_ack_pending=MAX_ACK_PENDING,
        mem_storage=True,
        num_replicas=settings.replicas,
    )
    await js.add_consumer(lane.stream, config)


async def payload_bucket(js: JetStreamContext, settings: BusSettings) -> ObjectStore:
    """The bucket for payloads larger than one message; what nobody deletes goes by age."""
    try:
        return await js.object_store(PAYLOADS)
    except NotFoundError:
        config = ObjectStoreConfig(
            bucket=PAYLOADS, storage=StorageType.MEMORY, ttl=PAYLOAD_AGE, replicas=settings.replicas
        )
        return await js.create_object_store(PAYLOADS, config=config)

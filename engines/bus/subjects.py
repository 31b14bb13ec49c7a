"""Names on the bus: subjects, streams, consumers, headers."""

from __future__ import annotations

from typing import NamedTuple

CANCEL = "sie.cancel"
HEALTH = "sie.health"
HELLO = "sie.hello"
AGAIN = "sie.again"
"""Gateways ask here for events that they have missed."""
GOODBYE = "sie.goodbye"
PAYLOADS = "SIE_PAYLOADS"
PAYLOAD_HEADER = "Sie-Payload"
ID_HEADER = "Nats-Msg-Id"
REQUEST_HEADER = "Sie-Request"
"""Whose answer a large payload is."""
REPLY_HEADER = "Sie-Reply"
"""The gateway that waits for the answer, for whoever cannot read the work itself."""
DEAD_LETTERS = "DEAD_LETTERS"
DEAD_LETTER = "sie.dlq"
GIVEN_UP = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*"
"""Where the server tells of messages that were delivered as often as they may be."""


class Lane(NamedTuple):
    """Work that any of a set of equal workers can take."""

    pool: str
    machine_profile: str
    bundle: str

    @property
    def stream(self) -> str:
        return f"WORK_POOL_{token(self.pool)}"

    @property
    def consumer(self) -> str:
        return "_".join(token(part) for part in self)

    @property
    def filter(self) -> str:
        """The subjects of the lane: one token for the model follows."""
        return f"sie.work.{'.'.join(token(part) for part in self)}.*"

    def subject(self, model: str) -> str:
        return f"sie.work.{'.'.join(token(part) for part in self)}.{token(model)}"


class Direct(NamedTuple):
    """Work for one worker, of whatever lane."""

    worker: str

    @property
    def stream(self) -> str:
        return f"WORK_WORKER_{token(self.worker)}"

    @property
    def consumer(self) -> str:
        return f"gen-{token(self.worker)}"

    @property
    def filter(self) -> str:
        return f"sie.work.*.*.*.*.{token(self.worker)}"

    def subject(self, lane: Lane, model: str) -> str:
        return f"{lane.subject(model)}.{token(self.worker)}"


Queue = Lane | Direct


def message_id(request_id: str, attempt: int) -> str:
    """Id under which the queue knows one publication of a request."""
    return f"{request_id}/{attempt}" if attempt else request_id


def of_message_id(given: str) -> tuple[str, int]:
    """Request id and attempt of a ``message_id``."""
    request_id, _, attempt = given.partition("/")
    return request_id, int(attempt or 0)


def cancel_one(worker: str) -> str:
    """Cancels attempts on one worker; ``CANCEL`` cancels requests on all."""
    return f"{CANCEL}.{token(worker)}"


def again(worker: str) -> str:
    """Asks one worker for missed events; ``AGAIN`` asks all."""
    return f"{AGAIN}.{token(worker)}"


def dead_letter(model: str) -> str:
    return f"{DEAD_LETTER}.{token(model)}"


def pool_subjects(pool: str) -> str:
    return f"sie.work.{token(pool)}.*.*.*"


def reply(gateway: str) -> str:
    return f"sie.reply.{gateway}"


def token(name: str) -> str:
    """``name`` as one token of a subject (and as part of a stream's or consumer's name)."""
    escaped = name.replace("/", "__").replace(".", "_dot_")
    return "".join("_" if char in "*>" or char.isspace() or ord(char) < 33 else char for char in escaped) or "_"

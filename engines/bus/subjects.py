"""Names on the bus: subjects, streams, consumers, headers."""

from __future__ import annotations

from typing import NamedTuple

CANCEL = "sie.cancel"
HEALTH = "sie.health"
HELLO = "sie.hello"
GOODBYE = "sie.goodbye"
PAYLOADS = "SIE_PAYLOADS"
PAYLOAD_HEADER = "Sie-Payload"


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


def pool_subjects(pool: str) -> str:
    return f"sie.work.{token(pool)}.*.*.*"


def reply(gateway: str) -> str:
    return f"sie.reply.{gateway}"


def token(name: str) -> str:
    """``name`` as one token of a subject (and as part of a stream's or consumer's name)."""
    escaped = name.replace("/", "__").replace(".", "_dot_")
    return "".join("_" if char in "*>" or char.isspace() or ord(char) < 33 else char for char in escaped) or "_"

"""A catalog, a cluster and a dispatcher without processes, and a small operation table, for tests of the HTTP half."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from engines.protocol.catalog import Bundle, Generation, ModelEntry, Profile, Resolved, UnknownModel, UnknownProfile
from engines.protocol.cluster import (
    Answer,
    BusCounts,
    DispatchError,
    ModelStatus,
    PendingGenerations,
    Route,
    Timeouts,
    Traffic,
    WorkerStatus,
)
from engines.protocol.work import Work
from generated.sie.operations import Body, Operation, Parameter, Response
from handlers.http.access import AccessLog, Line
from handlers.http.server import Server
from handlers.services import Services
from handlers.settings import Settings

PROFILE = Profile(name="default", engine="vllm", adapter_path="a:b", source="package:x")
ENTRIES = (
    ModelEntry(
        name="org/chat",
        tasks=("generate",),
        generation=Generation(context_length=100, grammar=("regex",), tools=True),
        profiles={
            "default": PROFILE,
            "fast": msgspec.structs.replace(PROFILE, name="fast", lora_paths={"poet": "p", "clerk": "c"}),
        },
    ),
    ModelEntry(name="org/vectors", tasks=("encode",), dims={"dense": 384}, profiles={"default": PROFILE}),
)


class FakeCatalog:
    """Two models. Names resolve exactly, with ``__`` for ``/``, and with ``:profile``."""

    epoch = 0

    def models(self) -> Sequence[ModelEntry]:
        return ENTRIES

    def bundles(self) -> Sequence[Bundle]:
        return (Bundle(name="default", engine="vllm", adapters=("a",)),)

    def bundle_config_hash(self, bundle: str) -> str:
        return "0" * 64

    def resolve(self, model: str) -> Resolved:
        name, _, profile = model.replace("__", "/").lower().partition(":")
        entry = next((entry for entry in ENTRIES if entry.name == name), None)
        if entry is None:
            raise UnknownModel(model)
        if (profile or "default") not in entry.profiles:
            raise UnknownProfile(f"Model '{name}' has no profile '{profile}'")
        return Resolved(entry, entry.profiles[profile or "default"], "default")


class FakeCluster:
    """One healthy worker that has loaded ``org/chat``, one that is stale."""

    connected = True

    def workers(self) -> Sequence[WorkerStatus]:
        loaded = [ModelStatus(name="org/chat", state="loaded"), ModelStatus(name="elsewhere/only", state="loaded")]
        return (WorkerStatus(name="w1", models=loaded, queue_depth=3), WorkerStatus(name="w2", healthy=False))

    def model_status(self, name: str) -> ModelStatus:
        return ModelStatus(name=name, state="loaded" if name == "org/chat" else "available")

    def traffic(self) -> Traffic:
        return Traffic(requests=2.5)

    def bus_counts(self) -> BusCounts:
        return BusCounts(payload_offloads=2)

    def dead_letters(self) -> dict[tuple[str, str], int]:
        return {}

    def pending_generations(self) -> Sequence[PendingGenerations]:
        return [PendingGenerations(model="org/chat", profile="fast", pool="default", count=2, waiting_first_chunk=2)]


class FakeDispatcher:
    """Refuses all work."""

    async def submit(self, work: Work, route: Route, timeouts: Timeouts) -> Answer:
        raise DispatchError("provisioning", "no worker yet", retry_after=60)


def services(**settings: Any) -> Services:
    return Services(FakeCatalog(), FakeDispatcher(), FakeCluster(), Settings(**settings))


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    role: str
    content: str | msgspec.UnsetType = msgspec.UNSET


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A body with one field of each kind that a message of msgspec can be about."""

    model: str
    messages: list[Message] = []
    count: int | msgspec.UnsetType | None = msgspec.UNSET
    share: float = 0.0
    bias: dict[str, int] = {}
    any: Any = None


class Reply(msgspec.Struct):
    text: str


class OpenAIErrorEnvelope(msgspec.Struct):
    error: dict[str, Any]


class StandardApiError(msgspec.Struct):
    detail: dict[str, Any]


JSON = "application/json"
MSGPACK = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")


def operation(**changes: Any) -> Operation:
    """``POST /things`` of an OpenAI-shaped surface, open to all."""
    openai, standard = (OpenAIErrorEnvelope,), (StandardApiError,)
    made = Operation(
        id="make_thing",
        method="POST",
        path="/things",
        tag="inference",
        body=Body(type=Request, media=(JSON, *MSGPACK), max_bytes=100_000),
        responses={
            200: Response(content=dict.fromkeys((JSON, *MSGPACK), (Reply,)) | {"text/event-stream": ()}),
            400: Response(content={JSON: openai}),
            401: Response(content={JSON: standard}),
            413: Response(content={JSON: openai}),
            415: Response(content={JSON: openai}),
            500: Response(content={JSON: (OpenAIErrorEnvelope, StandardApiError)}),
            503: Response(content={JSON: openai}, headers=("Retry-After", "X-SIE-Error-Code")),
        },
        success=200,
        secured=False,
    )
    return msgspec.structs.replace(made, **changes)


def server(*operations: Operation, lines: list[Line] | None = None, **options: Any) -> Server:
    """A server of ``operations`` with the settings given; ``lines`` gets its access log."""

    class Gather(AccessLog):
        enabled = True

        def __call__(self, line: Line) -> None:
            if lines is not None:
                lines.append(line)

    schemas = options.pop("schemas", {})
    wrapped = options.pop("wrapped", frozenset())
    return Server(
        operations,
        {"components": {"schemas": schemas}},
        Settings(**options),
        version="1.2.3",
        wrapped=wrapped,
        access=Gather(None),
    )


__all__ = ["JSON", "MSGPACK", "Parameter", "Reply", "operation", "server", "services"]

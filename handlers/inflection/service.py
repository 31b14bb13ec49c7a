"""This contract as an application of its own: alone, or mounted in that of the first."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec
from litestar import Litestar
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp

from generated.inflection import operations, routes
from generated.inflection.interfaces import ChatHandlers, DocsHandlers, Handlers, HealthHandlers
from generated.sie.interfaces import Context as FirstContext

from .. import docs
from ..health import HealthSurface
from ..http.access import AccessLog
from ..http.plan import Envelope
from ..http.server import AnyRequest, Handler, Server
from ..http.unrouted import Paths
from ..services import Services
from .chat import InflectionChat
from .envelopes import SHAPES
from .options import Options


class OwnPaths(Paths):
    """Faults outside of operations (404, 405) are told as those of operations are."""

    def envelope(self, path: str, status: int) -> Envelope:
        return Envelope(status, SHAPES["ErrorResponse"], "detail")


class InflectionServer(Server):
    """Serves the operations; the access log names their paths as they are reached from outside."""

    def __init__(self, services: Services, *, version: str, access: AccessLog, prefix: str) -> None:
        super().__init__(
            operations.ALL,
            msgspec.json.decode(document()),
            services.settings,
            version=version,
            access=access,
            observer=services.metrics,
            limiter=services.limiter,
            shapes=SHAPES,
        )
        self.paths = OwnPaths(self.plans.values())
        self._seen = {one.id: msgspec.structs.replace(one, path=prefix + one.path) for one in operations.ALL}

    async def __call__(self, operation: Any, request: AnyRequest, handler: Handler | None, *path: str) -> ASGIApp:
        """Serve one request."""
        return await super().__call__(self._seen[operation.id], request, handler, *path)


@cache
def document() -> bytes:
    """The effective document, byte for byte."""
    return Path(operations.DOCUMENT).read_bytes()


class DocsSurface(docs.DocsSurface):
    """The document of this contract, and the first contract's page, which shows what lies beside it."""

    async def openapi_json(self, context: FirstContext) -> bytes:
        """The document that this server honours."""
        return document()


class Inflection:
    """The application. ``prefix`` is where it is mounted, empty when it stands alone.

    Args:
        options: Further arguments of Litestar, for an application that stands alone.
    """

    def __init__(
        self, services: Services, own: Options, access: AccessLog, *, version: str, prefix: str = "", **options: Any
    ) -> None:
        self.server = InflectionServer(services, version=version, access=access, prefix=prefix)
        handlers = Handlers(
            chat=cast("ChatHandlers", InflectionChat(services, own)),
            health=cast("HealthHandlers", HealthSurface(services)),
            docs=cast("DocsHandlers", DocsSurface(services)),
        )
        self.application = Litestar(
            routes.build(handlers, self.server),
            openapi_config=None,
            logging_config=None,
            exception_handlers={HTTPException: self.server.unrouted, Exception: self.server.crashed},
            **options,
        )

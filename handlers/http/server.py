"""One request through an operation: guard, body, handler, answer. Implements the generated ``Serve``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from litestar import Request, Response, WebSocket
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Receive

from ..errors import Failure, Internal, NotImplementedYet, TooMany, Unauthorized
from ..limits import Limiter
from ..settings import Settings
from . import audit, subprotocol
from .access import AccessLog
from .answers import Answer, Done, Gone
from .auth import Guard, bearer
from .body import ClientGone, read, refuse_encoding
from .context import RequestContext
from .decode import THREAD_FROM
from .envelopes import SHAPES, Shape, wrapped
from .form import FormDecoder
from .plan import Plan
from .respond import Responder
from .skew import Skew
from .sockets import Sockets
from .unrouted import Paths, not_allowed
from .visits import Observer, Visits

logger = logging.getLogger("sie.http")

LEFT = 499
"""Status in the audit log of a request whose client had gone; nobody is sent it."""

Handler = Callable[..., Any]
AnyRequest = Request[Any, Any, Any]


class Server:
    """Serves the operations of one document.

    Args:
        operations: The generated table.
        document: The effective document, for the schemas of the second pass.
        settings: Tokens, origins, limits.
        version: What ``X-SIE-Version`` says.
        wrapped: Ids of OpenAI-shaped operations that wrap the native path, so that their errors follow contract A.6.
        access: Where request lines go.
        shapes: Envelopes by schema name.
        observer: Who counts requests.
        pages: By operation id, what a browser without a token sees instead of the JSON body of its 401: body, headers.
        limiter: Shares between callers; it has every request that brings work, from its guard to its last byte.
    """

    def __init__(
        self,
        operations: Iterable[Any],
        document: Mapping[str, Any],
        settings: Settings,
        *,
        version: str,
        wrapped: frozenset[str] = frozenset(),
        access: AccessLog | None = None,
        shapes: Mapping[str, Shape] = SHAPES,
        observer: Observer | None = None,
        pages: Mapping[str, tuple[bytes, Mapping[str, str]]] | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self.guard = Guard(settings)
        self.visits = Visits(access or AccessLog(None), observer)
        self.respond = Responder(settings, version)
        self.skew = Skew(version)
        self._sockets = Sockets()
        self._pages = pages or {}
        self._limiter = limiter or Limiter(settings)
        self._schemas = document.get("components", {}).get("schemas", {})
        self._shapes = shapes
        self._limit = settings.max_body_bytes
        self.plans: dict[str, Plan] = {}
        for operation in operations:
            self.add(operation)
        self.paths = Paths(self.plans.values())
        self._wrapped = wrapped

    def add(self, operation: Any) -> None:
        """Prepare one more operation, such as one that the document does not have."""
        self.plans[operation.id] = Plan(operation, self._schemas, self._shapes, self._limit)

    async def __call__(self, operation: Any, request: AnyRequest, handler: Handler | None, *path: str) -> ASGIApp:
        """Serve one request. Raises only the cancellation of a server that stops."""
        plan = self.plans[operation.id]
        scope, receive = request.scope, request.receive
        context = RequestContext(operation, dict(scope["headers"]), scope["query_string"])
        visit = self.visits.begin(scope["method"], operation.path, context.request_id)
        if (sdk := context.raw.get(b"x-sie-sdk-version")) is not None:
            self.skew(sdk)
        try:
            if plan.admin:
                context.subject = audit.subject(path)
            if plan.secured:
                self.guard.check(context.raw.get(b"authorization"), admin=plan.admin, tag=operation.tag)
            if handler is None:
                raise NotImplementedYet(operation.id)
            if plan.limited:
                visit.lease = self._limiter.enter(bearer(context.raw.get(b"authorization")))
            if plan.parameters:
                plan.parameters.check(context, path)
            if plan.decode is not None:
                path = (*path, await self._body(plan, context, receive))
                context.subject = context.subject or audit.subject(path) if plan.admin else ""
            visit.watch(receive)
            try:
                result = await handler(context, *path)
            finally:
                visit.unwatch()
            if plan.admin:
                audit.record(context, context.status or plan.success)
            return self.respond.success(plan, context, result, visit)
        except Failure as failure:
            return self._failure(plan, context, failure, visit)
        except ClientGone:
            return Gone(visit)
        except asyncio.CancelledError:
            if plan.admin:
                # the change may have been made
                audit.record(context, LEFT if visit.left else 503)
            if not visit.left:
                visit(503, False)
                raise
            visit.acknowledge()
            return Gone(visit)
        except Exception:
            logger.exception("unhandled exception in %s, request %s", operation.id, context.request_id)
            return self._failure(plan, context, Internal(), visit)

    @staticmethod
    async def _body(plan: Plan, context: RequestContext, receive: Receive) -> Any:
        refuse_encoding(context.raw)
        decode = plan.decode
        if isinstance(decode, FormDecoder):
            return await decode(context.raw, receive, plan.limit, context.filenames)
        assert decode is not None
        body = await read(context.raw, receive, plan.limit)
        if not body and not plan.operation.body.required:
            return None
        content_type = context.raw.get(b"content-type")
        if len(body) < THREAD_FROM:
            return decode(content_type, body)
        return await decode.in_thread(content_type, body)

    def _failure(self, plan: Plan, context: RequestContext, failure: Failure, done: Done | None) -> Answer:
        if isinstance(failure, TooMany) and 429 not in plan.shapes:
            failure = failure.undeclared()
        if context.operation.id in self._wrapped:
            failure = wrapped(failure)
        if failure.status == 401 and context.operation.id in self._pages:
            accept = context.raw.get(b"accept", b"")
            if b"text/html" in accept:
                body, headers = self._pages[context.operation.id]
                context.response_headers = {k: v for k, v in headers.items() if k != "content-type"}
                return Answer(401, body, self.respond.headers(context, headers["content-type"]), done)
        envelope = plan.settle(failure)
        if plan.admin:
            audit.record(context, envelope.status, failure.native)
        return self.respond.failure(envelope, context, failure, done)

    async def options(self, request: AnyRequest, allow: str) -> ASGIApp:
        """Answer ``OPTIONS``: 204 with the methods of the path, and the CORS headers where they are asked for."""
        context = RequestContext(None, dict(request.scope["headers"]))
        headers = self.respond.headers(context, "text/plain")[1:]
        headers.append((b"allow", allow.encode()))
        if self.respond.cors.enabled:
            headers += self.respond.cors.preflight(context.raw, allow.encode())
        plan = self.paths.find(request.scope["path"])
        route = plan.operation.path if plan else ""
        return Answer(204, b"", headers, self.visits.begin("OPTIONS", route, context.request_id))

    async def upgrade_required(self, operation: Any, request: AnyRequest) -> ASGIApp:
        """Answer a plain GET of a WebSocket: 426."""
        plan = self.plans[operation.id]
        context = RequestContext(operation, dict(request.scope["headers"]))
        done = self.visits.begin("GET", operation.path, context.request_id)
        try:
            if plan.secured:
                self.guard.check(context.raw.get(b"authorization"), admin=plan.admin, tag=operation.tag)
            upgrade = {"upgrade": "websocket", "connection": "Upgrade"}
            raise Failure(426, "upgrade_required", "This path takes WebSocket connections only", headers=upgrade)
        except Failure as failure:
            return self._failure(plan, context, failure, done)

    async def websocket(
        self, operation: Any, socket: WebSocket[Any, Any, Any], handler: Handler | None, *path: str
    ) -> None:
        """Accept a WebSocket and hand it over; refuse it with a plain HTTP answer before that.

        It is closed when its token is rotated out.
        """
        plan = self.plans[operation.id]
        context = RequestContext(operation, dict(socket.scope["headers"]))
        done = self.visits.begin("WEBSOCKET", operation.path, context.request_id)
        authorization = subprotocol.authorization(context.raw)

        def check() -> None:
            if plan.secured:
                self.guard.check(authorization, admin=plan.admin, tag=operation.tag)

        status = 101
        try:
            try:
                check()
                if self.guard.lets_all(operation.tag) and self.respond.cors.foreign(context.raw):
                    # where no token is asked for, any page that the operator visits could read along
                    raise Unauthorized("Pages of this origin may not watch; SIE_CORS_ORIGINS names those that may")
                if handler is None:
                    raise NotImplementedYet(operation.id)
            except Failure as failure:
                answer = self._failure(plan, context, failure, None)
                status = answer.status
                await _refuse(socket, answer)
                return
            await socket.accept(subprotocol.NAME if subprotocol.NAME in subprotocol.offered(context.raw) else None)
            await self._sockets.serve(handler(context, *path, socket), socket, check)
        finally:
            done(status, False)

    def unrouted(self, request: AnyRequest, error: HTTPException) -> Response[bytes]:
        """Exception handler of the application: what was refused before an operation was known (404, 405)."""
        path, method = request.scope["path"], request.scope["method"]
        context = RequestContext(None, dict(request.scope["headers"]))
        plan = self.paths.find(path)
        try:
            # that an open path does not take a method is no secret either
            if error.status_code != 405 or plan is None or plan.operation.secured:
                self.guard.check_any(context.raw.get(b"authorization"))
            if error.status_code == 404:
                failure = self.paths.not_found(path)
            elif error.status_code == 405:
                failure = not_allowed(method, path, _allow(error))
            else:
                failure = Failure(error.status_code, "invalid_request", error.detail)
        except Failure as refused:
            failure = refused
        return self._outside(context, method, path, failure)

    def crashed(self, request: AnyRequest, error: Exception) -> Response[bytes]:
        """Exception handler of the application: a fault outside of operations."""
        path, method = request.scope["path"], request.scope["method"]
        context = RequestContext(None, dict(request.scope["headers"]))
        logger.error("unhandled exception at %s, request %s", path, context.request_id, exc_info=error)
        return self._outside(context, method, path, Internal())

    def _outside(self, context: RequestContext, method: str, path: str, failure: Failure) -> Response[bytes]:
        plan = self.paths.find(path)
        answer = self.respond.failure(self.paths.envelope(path, failure.status), context, failure, None)
        self.visits.begin(method, plan.operation.path if plan else "", context.request_id)(failure.status, False)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers}
        media = headers.pop("content-type")
        return Response(answer.body, status_code=answer.status, headers=headers, media_type=media)


def _allow(error: HTTPException) -> str:
    headers = error.headers or {}
    return next((value for name, value in headers.items() if name.lower() == "allow"), "")


async def _refuse(socket: WebSocket[Any, Any, Any], answer: Answer) -> None:
    """Refuse a WebSocket before it is accepted: with ``answer`` where the server can, else by closing (403)."""
    if "websocket.http.response" not in (socket.scope.get("extensions") or {}):
        await socket.close(code=1008)
        return
    start = {"type": "websocket.http.response.start", "status": answer.status, "headers": answer.headers}
    await socket.send(start)  # type: ignore[arg-type]  # Litestar does not know this extension of ASGI
    await socket.send({"type": "websocket.http.response.body", "body": answer.body})  # type: ignore[arg-type]

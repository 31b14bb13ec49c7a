"""The composition root, which ``litestar run`` finds: settings, catalog, cluster, handlers and HTTP, put together."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any, cast

import msgspec
from litestar import Litestar, Request, asgi, get
from litestar.exceptions import HTTPException
from litestar.middleware.base import DefineMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from engines.bus.tasks import ended
from engines.cli import ModelsCLI
from engines.cluster import Cluster
from engines.protocol import tracing
from engines.protocol.tracing import Tracing
from engines.worker import log as logs
from engines.worker.cli import WorkerCLI
from generated.sie import operations, routes
from generated.sie.interfaces import Handlers, InferenceHandlers
from generated.sie.operations import Operation
from handlers import docs, inflection, settings
from handlers.configs import ConfigSurface
from handlers.generation import ChatSurface, CompletionsSurface, GenerateSurface, ResponsesSurface
from handlers.health import HealthSurface
from handlers.http.access import AccessLog, silence_server, to_stdout
from handlers.http.idle import IdleConnections
from handlers.http.server import Server
from handlers.http.visits import Visits
from handlers.inflection import Inflection
from handlers.limits import Admitting, Limiter, LimitsCollector
from handlers.metrics import Metered
from handlers.metrics.cluster import ClusterCollector
from handlers.metrics.lag import watch as watch_lag
from handlers.metrics.surface import METRICS_PATH, MetricsSurface
from handlers.models import ModelsSurface
from handlers.moderations import ModerationsSurface
from handlers.observability import ObservabilitySurface
from handlers.pages import PLAYGROUND_PATH, STATIC_PATH, PagesSurface, page
from handlers.pools import PoolsSurface
from handlers.retrieval import (
    EmbeddingsSurface,
    EncodeSurface,
    ExtractSurface,
    RerankSurface,
    ScoreSurface,
    TranscriptionSurface,
)
from handlers.services import Services

log = logging.getLogger("sie.app")

WRAPPED = frozenset({"proxy_openai_embeddings", "proxy_openai_transcription"})
"""OpenAI-shaped operations that run on the native path."""
RESTART_PAUSE = 5.0
FORCED_LIMIT = 5.0
"""Seconds after the second signal in which the process ends, whatever it is doing."""


class Inference(
    ChatSurface,
    CompletionsSurface,
    ResponsesSurface,
    GenerateSurface,
    EmbeddingsSurface,
    RerankSurface,
    EncodeSurface,
    ScoreSurface,
    ExtractSurface,
    TranscriptionSurface,
    ModerationsSurface,
):
    """Every operation of the tag ``inference`` that is served; the others answer 501."""


class Health(HealthSurface, PagesSurface):
    """Every operation of the tag ``health``, with the status page."""


def create_app(services: Services | None = None, access: AccessLog | None = None) -> Litestar:
    """The application. Starts nothing before its first lifespan event.

    Args:
        services: Instead of those of a real cluster, for tests.
        access: Instead of an access log on standard output.

    Raises:
        SettingError, CatalogError, ValueError: an environment variable or a catalog file cannot be used.
    """
    cluster = None
    if services is None:
        cluster = Cluster.from_env()
        dispatcher = cluster.dispatcher
        services = Services(cluster.catalog, dispatcher, dispatcher, settings.read(), cluster.pools, cluster.lanes)
    limiter = services.limiter or Limiter(services.settings)
    services = dataclasses.replace(services, limiter=limiter)
    if access is None:
        access = AccessLog(to_stdout if services.settings.access_log else None)
    serve = Server(
        operations.ALL,
        msgspec.json.decode(docs.document()),
        services.settings,
        version=_version(),
        wrapped=WRAPPED,
        access=access,
        observer=services.metrics,
        limiter=services.limiter,
        pages={operations.STATUS_PAGE.id: page("status.html")},
    )
    own = inflection.read()
    services.metrics.registry.register(ClusterCollector(services.catalog, services.cluster))
    services.metrics.registry.register(LimitsCollector(limiter))
    traces = tracing.from_env("oasgate-gateway")
    services = dataclasses.replace(
        services, dispatcher=Admitting(Metered(services.dispatcher, services.metrics, traces))
    )
    middleware = _request_spans(traces, serve.visits)
    if _spec() == "inflection":
        alone: Inflection = Inflection(
            services,
            own,
            access,
            version=_version(),
            middleware=middleware,
            plugins=[WorkerCLI(), ModelsCLI(), IdleConnections()],
            lifespan=[lambda _: _Life(alone.server, access, cluster, services, traces).span()],
        )
        alone.server.visits = serve.visits
        alone.application.state.server = alone.server
        return alone.application
    application = Litestar(
        [*routes.build(_handlers(services), serve), *_additions(services, serve), *_mounted(services, own, serve)],
        openapi_config=None,
        logging_config=None,
        exception_handlers={HTTPException: serve.unrouted, Exception: serve.crashed},
        middleware=middleware,
        plugins=[WorkerCLI(), ModelsCLI(), IdleConnections()],
        lifespan=[lambda _: _Life(serve, access, cluster, services, traces).span()],
    )
    application.state.server = serve
    return application


def _spec() -> str:
    """``SPEC``: the contract to serve at the root.

    Raises:
        SettingError: there is none of that name.
    """
    name = os.environ.get("SPEC", "").strip() or "sie"
    if name not in ("sie", "inflection"):
        raise settings.SettingError(f"SPEC: expected sie or inflection, got {name!r}")
    return name


def _request_spans(traces: Tracing | None, visits: Visits) -> list[DefineMiddleware]:
    """What gives each request a span, where traces are sent. Nothing of it is imported elsewhere."""
    if traces is None:
        return []
    from handlers.http import spans

    visits.begun = spans.describe
    return [spans.middleware(traces.provider)]


def _mounted(services: Services, own: inflection.Options, serve: Server) -> list[Any]:
    """The second contract under its prefix, on the same engines, unless the operator does not want it."""
    if own.prefix is None:
        return []
    second = Inflection(services, own, AccessLog(None), version=_version(), prefix=own.prefix)
    second.server.visits = serve.visits

    @asgi(own.prefix, is_mount=True, copy_scope=True, name="inflection")
    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["path"].rstrip("/") or "/"
        await second.application(scope, receive, send)

    return [mounted]


def _handlers(services: Services) -> Handlers:
    """One implementation per tag. A method that is missing here is named by the type checker and by a test."""
    return Handlers(
        health=Health(services),
        inference=cast("InferenceHandlers", Inference(services)),
        models=ModelsSurface(services),
        pools=PoolsSurface(services),
        config=ConfigSurface(services),
        observability=ObservabilitySurface(services),
        docs=docs.DocsSurface(services),
    )


def _additions(services: Services, serve: Server) -> list[Any]:
    """Routes that the document does not have: open as ``/docs`` is, or guarded as ``/health`` is (contract K)."""
    shown, measured = PagesSurface(services), MetricsSurface(services)
    document = docs.DocsSurface(services)

    def added(like: Operation, name: str, path: str, handler: Callable[..., Any]) -> Any:
        responses = {**like.responses, 404: operations.GET_POOL.responses[404]}
        operation = msgspec.structs.replace(like, id=name, path=path.replace(":str", ""), responses=responses)
        serve.add(operation)

        async def answer(request: Request[Any, Any, Any]) -> ASGIApp:
            return await serve(operation, request, handler, *map(str, request.path_params.values()))

        answer.__name__ = name
        return get(path, name=name, status_code=200)(answer)

    return [
        added(operations.DOCS_UI, "docs_script", docs.SCRIPT_PATH, document.docs_script),
        added(operations.DOCS_UI, "playground", PLAYGROUND_PATH, shown.playground),
        added(operations.DOCS_UI, "static", STATIC_PATH, shown.static),
        added(operations.HEALTH, "metrics", METRICS_PATH, measured.metrics),
    ]


def _version() -> str:
    try:
        return version("oasgate")
    except PackageNotFoundError:  # run from its checkout
        return str(msgspec.json.decode(docs.document())["info"]["version"])


class _Life:
    """From the first request to the last: the cluster beside the server, and a bounded end.

    At the first signal the server closes its port, so that it is no longer ready, and requests that it has or still
    takes get ``drain`` seconds; then the cluster stops, which ends their streams with an error of their own; what is
    left is cancelled.
    A second signal cancels all at once.
    """

    def __init__(
        self,
        serve: Server,
        access: AccessLog,
        cluster: Cluster | None,
        services: Services,
        traces: Tracing | None = None,
    ) -> None:
        self._traces = traces
        self._serve = serve
        self._access = access
        self._cluster = cluster
        self._drain = services.settings.drain_timeout
        self._metrics = services.metrics
        self._hurry = asyncio.Event()
        self._served = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def span(self) -> AsyncIterator[None]:
        """The lifespan of the application."""
        if self._cluster is not None:
            logs.configure()
            silence_server()
            self._tasks.append(asyncio.create_task(self._start(self._cluster), name="start-cluster"))
        self._tasks.append(asyncio.create_task(watch_lag(self._metrics), name="loop-lag"))
        restore = self._on_signals()
        try:
            yield
        finally:
            restore()
            await self._end()
            self._access.flush()
            if self._traces is not None:
                await asyncio.to_thread(self._traces.close)

    async def _start(self, cluster: Cluster) -> None:
        """Start the cluster behind the server, which answers from its first moment."""
        while True:
            try:
                await cluster.start()
                return
            except Exception as error:
                log.error("the cluster did not start, trying again in %.0f s: %s", RESTART_PAUSE, error)
                await asyncio.sleep(RESTART_PAUSE)

    def _on_signals(self) -> Callable[[], None]:
        """Begin the end with the signal that stops the server, which waits for its requests before it tells us."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        count = 0

        def received(number: int, frame: FrameType | None) -> None:
            nonlocal count
            count += 1
            if count > 1:
                loop.call_soon_threadsafe(self._force)
                return
            loop.call_soon_threadsafe(self._begin_end)
            handler = before[signal.Signals(number)]
            if callable(handler):
                handler(number, frame)

        for number in before:
            signal.signal(number, received)

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        return restore

    def _force(self) -> None:
        """The second signal: wait for nothing, and end whatever happens."""
        if self._hurry.is_set():
            return
        self._hurry.set()
        if self._cluster is not None:
            self._cluster.hurry()
        for task in self._serve.visits.tasks():
            task.cancel()
        last = threading.Timer(FORCED_LIMIT, os._exit, (1,))
        last.daemon = True
        last.start()

    def _begin_end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._finish(), name="drain")

    async def _end(self) -> None:
        self._served.set()
        self._begin_end()
        assert self._ending is not None
        await self._ending

    async def _finish(self) -> None:
        await self._patiently(self._quiet(), self._drain)
        for task in self._tasks:
            task.cancel()
        if self._cluster is not None:
            await self._cluster.stop()
        await self._patiently(self._quiet(), 1.0)
        for task in self._serve.visits.tasks():
            task.cancel()

    async def _quiet(self) -> None:
        """Wait until the server has ended its requests and takes no more: some still come in after a signal."""
        await self._served.wait()
        while running := self._serve.visits.tasks() - {asyncio.current_task()}:
            await asyncio.wait(running)

    async def _patiently(self, awaited: Coroutine[Any, Any, None], limit: float) -> None:
        """Wait at most ``limit`` seconds, and no longer than until someone is in a hurry."""
        tasks = {asyncio.create_task(awaited), asyncio.create_task(self._hurry.wait())}
        await asyncio.wait(tasks, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        await ended(*tasks)

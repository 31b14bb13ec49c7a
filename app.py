"""The composition root, which ``litestar run`` finds: settings, catalog, cluster, handlers and HTTP, put together."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

import msgspec
from litestar import Litestar, Request, asgi, get
from litestar.exceptions import HTTPException
from litestar.middleware.base import DefineMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from engines.cli import ModelsCLI
from engines.cluster import Cluster
from engines.protocol import tracing
from engines.protocol.tracing import Tracing
from engines.worker.cli import WorkerCLI
from generated.sie import operations, routes
from generated.sie.interfaces import Handlers, InferenceHandlers
from generated.sie.operations import Operation
from handlers import docs, inflection, settings
from handlers.configs import ConfigSurface
from handlers.generation import ChatSurface, CompletionsSurface, GenerateSurface, ResponsesSurface
from handlers.health import HealthSurface
from handlers.http.access import AccessLog, to_stdout
from handlers.http.idle import IdleConnections
from handlers.http.server import Server
from handlers.http.visits import Visits
from handlers.inflection import Inflection
from handlers.lifetime import Lifetime
from handlers.limits import Admitting, Limiter, LimitsCollector
from handlers.metrics import Metered
from handlers.metrics.cluster import ClusterCollector
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

WRAPPED = frozenset({"proxy_openai_embeddings", "proxy_openai_transcription"})
"""OpenAI-shaped operations that run on the native path."""


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
            lifespan=[lambda _: Lifetime(alone.server, access, cluster, services, traces).span()],
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
        lifespan=[lambda _: Lifetime(serve, access, cluster, services, traces).span()],
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

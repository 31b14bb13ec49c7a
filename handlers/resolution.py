"""From a model argument and the routing headers to where the work goes. Shared by all inference surfaces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from engines.protocol.catalog import ModelEntry, Profile
from engines.protocol.cluster import Route
from generated.sie.interfaces import Context

from .errors import Capacity, InvalidField, PoolNotFound, from_catalog
from .services import Services
from .settings import Settings

DEFAULT_POOL: Final = "default"
POOL_HEADER: Final = "X-SIE-Pool"
PROFILE_HEADER: Final = "X-SIE-MACHINE-PROFILE"
_POOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")


@dataclass(frozen=True, slots=True)
class Target:
    """Where work goes: a model, one of its profiles, the bundle that runs it, the pool that takes it."""

    model: ModelEntry
    profile: Profile
    bundle: str
    route: Route

    def fields(self, context: Context) -> dict[str, Any]:
        """The fields of a work item that come from here and from the request's headers."""
        return {
            "request_id": context.request_id,
            "model": self.model.name,
            "profile": self.profile.name,
            "bundle": self.bundle,
            "pool": self.route.pool,
            "traceparent": context.header("traceparent"),
            "tracestate": context.header("tracestate"),
        }


def resolve(services: Services, context: Context, name: str, *, pool_param: str = POOL_HEADER) -> Target:
    """Resolve a model argument and the headers beside it; ``pool_param`` names the pool in errors.

    Raises:
        Failure: 404 for an unknown model, bundle or pool, 400 for an unknown profile or a malformed pool name,
            409 for a bundle that cannot run the model, 503 for a machine profile that is not configured.
    """
    try:
        found = services.catalog.resolve(name)
    except LookupError as error:
        raise from_catalog(error) from None
    return Target(found.model, found.profile, found.bundle, route(services, context, pool_param=pool_param))


def route(services: Services, context: Context, *, pool_param: str = POOL_HEADER) -> Route:
    """Pool and machine profile of a request. ``pool/profile`` in the second header overrides the first (contract I.4).

    Raises:
        Failure: 400 for a malformed pool name, 404 for an unknown one, 503 for a profile that is not configured.
    """
    pool = context.header(POOL_HEADER) or None
    profile = context.header(PROFILE_HEADER) or None
    if profile is not None and "/" in profile:
        pool, _, profile = profile.partition("/")
        if not profile:
            raise InvalidField(PROFILE_HEADER, "Nothing follows the slash; the form is 'pool/profile'")
    if pool is not None:
        if not _POOL_NAME.match(pool):
            raise InvalidField(pool_param, "Invalid pool name: only [A-Za-z0-9_-] are allowed (max 128 chars)")
        pool = pool.lower()
        if pool != DEFAULT_POOL and pool not in {worker.pool.lower() for worker in services.cluster.workers()}:
            raise PoolNotFound(pool)
    if profile is not None:
        profile = machine_profile(profile, services.settings)
    return Route(pool=pool or DEFAULT_POOL, machine_profile=profile)


def machine_profile(asked: str, settings: Settings) -> str:
    """The configured machine profile that ``asked`` means: itself, an alias, or its ``-spot`` form; whatever its case.

    Without a configured list every name is taken as it is.

    Raises:
        Failure: 503 ``GPU_NOT_CONFIGURED``.
    """
    aliases = {alias.lower(): target for alias, target in settings.gpu_aliases.items()}
    if not settings.gpu_types:
        return aliases.get(asked.lower(), asked)
    names = [asked, aliases.get(asked.lower()), f"{asked}-spot"]
    found = next((match for name in names if name and (match := _one_of(name, settings.gpu_types))), None)
    if found is None:
        raise Capacity(
            f"GPU type '{asked}' is not configured in this cluster.",
            None,
            native="GPU_NOT_CONFIGURED",
            param=PROFILE_HEADER,
            details={"gpu": asked, "configured_gpu_types": list(settings.gpu_types)},
            terminal=True,
        )
    return found


def _one_of(name: str, known: Sequence[str]) -> str | None:
    return next((entry for entry in known if entry.lower() == name.lower()), None)

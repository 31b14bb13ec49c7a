"""From a model argument and the routing headers to where the work goes. Shared by all inference surfaces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from engines.protocol.catalog import BundleConflict, ModelEntry, Profile, Resolved
from engines.protocol.cluster import Route
from engines.protocol.pools import DEFAULT_POOL, PoolSpec
from generated.sie.interfaces import Context

from .errors import Capacity, InvalidField, PoolNotFound, from_catalog
from .services import Services
from .settings import Settings

POOL_HEADER: Final = "X-SIE-Pool"
PROFILE_HEADER: Final = "X-SIE-MACHINE-PROFILE"
ENGINE_HEADER: Final = "X-SIE-Engine"
_POOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
_DEFAULT: Final = PoolSpec(name=DEFAULT_POOL)


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
        Failure: 404 for an unknown model, bundle or pool, 400 for an unknown profile or engine, a malformed pool name
            or a pool that does not serve the model, 409 for a bundle or an engine that cannot run the model, 503 for a
            machine profile that is not configured or that the pool may not use.
    """
    try:
        found = services.catalog.resolve(name)
        asked = _asked(context)
        pool = found.model.pool if asked.pool is None else asked.pool
        claim = _claim(services, pool, pool_param, found.model.pool)
        pinned = ":/" in name
        bundle = _bundle(found, claim, pinned=pinned)
        if asked.engine is not None:
            alone = pinned or claim.bundle is not None
            bundle = _of_engine(services, asked.engine, found, (bundle,) if alone else found.model.bundles)
    except LookupError as error:
        raise from_catalog(error) from None
    if found.model.pool is not None and claim.queue_pool.lower() != found.model.pool:
        message = f"Model '{found.model.name}' is served by pool '{found.model.pool}', not by '{claim.name}'"
        raise InvalidField(pool_param, message)
    return Target(found.model, found.profile, bundle, _route(services, claim, asked.machine_profile, bundle))


class _Asked(NamedTuple):
    """What the headers ask for."""

    pool: str | None
    machine_profile: str | None
    engine: str | None


def _asked(context: Context) -> _Asked:
    """Pool, machine profile and engine of a request. ``pool/profile`` in the second overrides the first (I.4)."""
    pool = context.header(POOL_HEADER) or None
    profile = context.header(PROFILE_HEADER) or None
    if profile is not None and "/" in profile:
        pool, _, profile = profile.partition("/")
        if not profile:
            raise InvalidField(PROFILE_HEADER, "Nothing follows the slash; the form is 'pool/profile'")
    return _Asked(pool, profile, context.header(ENGINE_HEADER) or None)


def _claim(services: Services, pool: str | None, pool_param: str, home: str | None) -> PoolSpec:
    """The pool of that name: one that was created, or the queue of workers that has the name itself.

    ``home`` is the queue that the model's own file names: it exists, even while it has no worker.
    """
    if pool is None:
        return _DEFAULT
    if not _POOL_NAME.match(pool):
        raise InvalidField(pool_param, "Invalid pool name: only [A-Za-z0-9_-] are allowed (max 128 chars)")
    name = pool.lower()
    if name == DEFAULT_POOL:
        return _DEFAULT
    queues = [worker.pool for worker in services.cluster.workers()]
    queues += [*services.settings.queue_pools, *([home] if home else [])]
    queue = next((queue for queue in queues if queue.lower() == name), None)
    if queue is not None:
        return PoolSpec(name=queue, queue_pool=queue)
    record = services.pools.find(name)
    if record is None:
        raise PoolNotFound(name)
    return record.spec


def _bundle(found: Resolved, claim: PoolSpec, *, pinned: bool) -> str:
    """The bundle that runs the model: that of the pool, where it has one."""
    if claim.bundle is None or claim.bundle == found.bundle:
        return found.bundle
    if pinned or claim.bundle not in found.model.bundles:
        message = f"Pool '{claim.name}' has bundle '{claim.bundle}', which does not run model '{found.model.name}'"
        if pinned:
            message = f"Pool '{claim.name}' has bundle '{claim.bundle}', and the model asks for '{found.bundle}'"
        raise BundleConflict(message, found.model.bundles)
    return claim.bundle


def _of_engine(services: Services, engine: str, found: Resolved, bundles: Sequence[str]) -> str:
    """The first of ``bundles`` whose engine is ``engine``, whatever its case (I.4).

    Raises:
        InvalidField: no bundle of the catalog has that engine.
        BundleConflict: none of ``bundles`` has it.
    """
    engines = {bundle.name: bundle.engine for bundle in services.catalog.bundles()}
    known = one_of(engine, sorted(set(engines.values())))
    if known is None:
        there = ", ".join(sorted(set(engines.values())))
        message = f"No bundle has the engine '{engine}' of {ENGINE_HEADER}; there are: {there}"
        raise InvalidField(None, message, place=ENGINE_HEADER)
    fit = next((name for name in bundles if engines.get(name) == known), None)
    if fit is None:
        message = f"Model '{found.model.name}' cannot be run by the engine '{known}' of {ENGINE_HEADER}"
        raise BundleConflict(message, found.model.bundles)
    return fit


def _route(services: Services, claim: PoolSpec, asked: str | None, bundle: str) -> Route:
    """Where work of a pool waits, within the pool's machine profiles and caps.

    Raises:
        Failure: 503 ``GPU_NOT_CONFIGURED`` or ``POOL_CAPACITY_UNAVAILABLE``.
    """
    profile = None if asked is None else machine_profile(asked, services.settings)
    if not claim.gpus:
        return Route(pool=claim.queue_pool, machine_profile=profile)
    usable = tuple(name for name in claim.gpus if claim.cap(name) != 0)
    if profile is None and usable:
        return Route(pool=claim.queue_pool, machine_profiles=usable)
    if profile is not None and claim.cap(profile) != 0:
        return Route(pool=claim.queue_pool, machine_profile=profile)
    gpu = profile or ", ".join(claim.gpus)
    raise Capacity(
        f"Pool '{claim.name}' may not use any worker with machine profile '{gpu}'",
        None,
        native="POOL_CAPACITY_UNAVAILABLE",
        details={"pool": claim.name, "gpu": gpu, "bundle": bundle, "cap": 0},
        terminal=True,
    )


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
    found = next((match for name in names if name and (match := one_of(name, settings.gpu_types))), None)
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


def one_of(name: str, known: Sequence[str]) -> str | None:
    """The entry of ``known`` that ``name`` is, whatever its case."""
    return next((entry for entry in known if entry.lower() == name.lower()), None)

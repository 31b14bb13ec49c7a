"""The rules of ``POST /v1/pools``, one function each, in the order in which they are applied (contract I.2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from engines.protocol.catalog import Resolved, variant
from engines.protocol.pools import DEFAULT_POOL, DEFAULT_TTL, PoolSpec
from generated.sie.models import CreatePoolRequest

from ..errors import InvalidField, PoolForbidden
from ..resolution import one_of
from ..services import Services
from .known import queue_pools, static_pool

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
MAX_PROFILE: Final = 128


def name_is_not_the_operators(services: Services, body: CreatePoolRequest) -> None:
    """403: the default pool and the operator's own cannot be created, changed or replaced."""
    if static_pool(services, body.name) is not None:
        raise PoolForbidden(f"Pool '{body.name.lower()}' is the operator's and cannot be changed")


def something_is_asked_for(services: Services, body: CreatePoolRequest) -> None:
    if not (body.gpus or None) and not (body.gpu_caps or None):
        raise InvalidField("gpus", "At least one of 'gpus' and 'gpu_caps' must name a machine profile")


def pinned_models_exist(services: Services, body: CreatePoolRequest) -> None:
    for index, model in enumerate(_given(body.pinned_models) or ()):
        try:
            services.catalog.resolve(model)
        except LookupError as error:
            raise InvalidField(f"pinned_models[{index}]", f"Unknown pinned model: {error.args[0]}") from None


def name_is_well_formed(services: Services, body: CreatePoolRequest) -> None:
    if not NAME.match(body.name) or body.name.lower() == "_default":
        raise InvalidField("name", "Invalid pool name: only [A-Za-z0-9_-] are allowed (max 128 chars)")


def profiles_are_configured(services: Services, body: CreatePoolRequest) -> None:
    """Only where the operator has configured a list."""
    known = services.settings.gpu_types
    if not known:
        return
    asked = [*(_given(body.gpus) or {}), *(_given(body.gpu_caps) or {})]
    unknown = sorted({profile for profile in asked if one_of(profile, known) is None})
    if unknown:
        raise InvalidField("gpus", f"Unknown machine profiles: {', '.join(unknown)} (configured: {', '.join(known)})")


def profiles_have_names(services: Services, body: CreatePoolRequest) -> None:
    """No request can name another: the values of headers come without white space around them."""
    for field, profiles in _profiles(body):
        for profile in profiles:
            if not profile or profile != profile.strip() or not profile.isprintable() or len(profile) > MAX_PROFILE:
                raise InvalidField(field, f"{profile[:MAX_PROFILE]!r} is no name of a machine profile")


def profiles_are_named_once(services: Services, body: CreatePoolRequest) -> None:
    """They are the same whatever their case."""
    for field, profiles in _profiles(body):
        seen: dict[str, str] = {}
        for profile in profiles:
            if (other := seen.setdefault(profile.lower(), profile)) != profile:
                raise InvalidField(field, f"'{other}' and '{profile}' are the same machine profile")


def caps_let_it_become_active(services: Services, body: CreatePoolRequest) -> None:
    """A cap of 0 closes a profile, and says so when it is used."""
    caps = {profile.lower(): cap for profile, cap in (_given(body.gpu_caps) or {}).items()}
    for profile, count in (_given(body.gpus) or {}).items():
        cap = caps.get(profile.lower())
        if cap and count > cap:
            message = f"The pool would never be active: it asks for {count} of '{profile}' and may have {cap}"
            raise InvalidField(f"gpus.{profile}", message)


def queue_pool_exists(services: Services, body: CreatePoolRequest) -> None:
    asked = _given(body.queue_pool)
    if asked is not None and asked.lower() not in {name.lower() for name in queue_pools(services)}:
        raise InvalidField("queue_pool", f"Unknown queue pool: {asked}")


def bundle_exists(services: Services, body: CreatePoolRequest) -> None:
    asked = _given(body.bundle)
    if asked is not None and asked not in {bundle.name for bundle in services.catalog.bundles()}:
        raise InvalidField("bundle", f"Unknown bundle: {asked}")


def pinned_models_run_in_the_bundle(services: Services, body: CreatePoolRequest) -> None:
    """Only where the pool has one; of any other bundles, those workers pin a model that can run it."""
    asked = _given(body.bundle)
    if asked is None:
        return
    for index, model in enumerate(_given(body.pinned_models) or ()):
        fit = services.catalog.resolve(model).model.bundles
        if asked not in fit:
            message = f"Bundle '{asked}' cannot run model '{model}' (these can: {', '.join(fit)})"
            raise InvalidField(f"pinned_models[{index}]", message)


def limits_are_kept(services: Services, body: CreatePoolRequest) -> None:
    """Limits that an operator may set."""
    settings = services.settings
    ttl, floor = _given(body.ttl_seconds), _given(body.minimum_worker_count)
    if settings.pool_max_ttl is not None and ttl is not None and ttl > settings.pool_max_ttl:
        raise InvalidField("ttl_seconds", f"must be at most {settings.pool_max_ttl:g}")
    if settings.pool_max_workers is not None and floor is not None and floor > settings.pool_max_workers:
        raise InvalidField("minimum_worker_count", f"must be at most {settings.pool_max_workers}")


def there_is_room(services: Services, body: CreatePoolRequest) -> None:
    """403: there are as many pools as the operator allows, and this would be one more."""
    limit = services.settings.max_pools
    if services.pools.find(body.name) is None and len(services.pools.all()) >= limit:
        raise PoolForbidden(f"There are {limit} pools already; delete one, or wait until one expires")


RULES: Final[Sequence[Callable[[Services, CreatePoolRequest], None]]] = (
    name_is_not_the_operators,
    something_is_asked_for,
    pinned_models_exist,
    name_is_well_formed,
    profiles_have_names,
    profiles_are_named_once,
    profiles_are_configured,
    caps_let_it_become_active,
    queue_pool_exists,
    bundle_exists,
    pinned_models_run_in_the_bundle,
    limits_are_kept,
    there_is_room,
)


def spec(services: Services, body: CreatePoolRequest) -> PoolSpec:
    """The pool that a body asks for, in canonical form: two bodies that mean the same give the same spec.

    Raises:
        Failure: 400 or 403, by the first rule that is broken.
    """
    for rule in RULES:
        rule(services, body)
    gpus = _canonical(_given(body.gpus) or {}, services.settings.gpu_types)
    caps = _canonical(_given(body.gpu_caps) or {}, services.settings.gpu_types or tuple(gpus))
    pinned = [canonical(services.catalog.resolve(model)) for model in _given(body.pinned_models) or ()]
    return PoolSpec(
        name=body.name.lower(),
        queue_pool=_queue_pool(services, _given(body.queue_pool)),
        bundle=_given(body.bundle),
        gpus=dict.fromkeys(sorted(caps), 0) | gpus,
        gpu_caps=caps,
        ttl_seconds=_ttl(services, _given(body.ttl_seconds)),
        minimum_worker_count=_given(body.minimum_worker_count) or 0,
        pinned_models=tuple(dict.fromkeys(pinned)),
    )


def canonical(found: Resolved) -> str:
    """``model``, or ``model:profile`` for a profile other than the default one."""
    return variant(found.model.name, found.profile.name)


def _profiles(body: CreatePoolRequest) -> tuple[tuple[str, dict[str, int]], ...]:
    return ("gpus", _given(body.gpus) or {}), ("gpu_caps", _given(body.gpu_caps) or {})


def _queue_pool(services: Services, asked: str | None) -> str:
    wanted = (asked or DEFAULT_POOL).lower()
    return next(name for name in queue_pools(services) if name.lower() == wanted)


def _ttl(services: Services, asked: int | None) -> int | None:
    """What the pool is stored with: a default longer than the operator allows is no way around the limit."""
    limit = services.settings.pool_max_ttl
    if asked is None and limit is not None and limit < DEFAULT_TTL:
        return int(limit)
    return asked


def _canonical(counts: dict[str, int], known: Sequence[str]) -> dict[str, int]:
    """Machine profiles as the operator spells them, sorted."""
    return {one_of(profile, known) or profile: count for profile, count in sorted(counts.items())}


def _given(value: Any) -> Any:
    """``None`` for what is absent: null means absent."""
    return None if value is UNSET or isinstance(value, msgspec.UnsetType) else value

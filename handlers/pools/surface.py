"""The five operations on pools."""

from __future__ import annotations

from engines.protocol.pools import PoolsUnavailable, UnknownPool
from generated.sie import models
from generated.sie.interfaces import Context

from ..errors import PoolForbidden, PoolNotFound, from_pools
from ..surface import Surface
from . import rules, wire
from .known import static_pool
from .rules import NAME


class PoolsSurface(Surface):
    """``/v1/pools``, ``/v1/pools/{name}``, ``/v1/pools/{name}/renew``."""

    async def list_pools(self, context: Context) -> models.PoolListResponse:
        """All pools, the operator's first. One that has expired is shown until it is swept away."""
        return models.PoolListResponse(pools=wire.pools_frame(self.services))

    async def create_pool(self, context: Context, body: models.CreatePoolRequest) -> models.Pool:
        """Create a pool; the same spec again renews it, another one replaces its spec.

        Raises:
            Failure: 400 or 403 by the rules.
        """
        spec = rules.spec(self.services, body)
        known = self.services.pools.find(spec.name)
        try:
            made = wire.pool(self.services, await self.services.pools.put(spec))
        except PoolsUnavailable as error:
            raise from_pools(error) from None
        self._count("created" if known is None else "renewed" if known.spec == spec else "updated")
        return made

    async def get_pool(self, context: Context, name: str) -> models.Pool:
        """One pool.

        Raises:
            PoolNotFound: there is none of that name.
        """
        static = static_pool(self.services, name)
        if static is not None:
            return wire.pool(self.services, static)
        try:
            return wire.pool(self.services, await self.services.pools.get(_checked(name)))
        except (UnknownPool, PoolsUnavailable) as error:
            raise from_pools(error) from None

    async def renew_pool(self, context: Context, name: str) -> models.MessageResponse:
        """Let a pool live on; the operator's live anyway.

        Raises:
            PoolNotFound: there is none of that name.
        """
        if static_pool(self.services, name) is None:
            try:
                await self.services.pools.renew(_checked(name))
            except (UnknownPool, PoolsUnavailable) as error:
                raise from_pools(error) from None
        self._count("renewed")
        return models.MessageResponse(message="Pool renewed")

    async def delete_pool(self, context: Context, name: str) -> models.MessageResponse:
        """Remove a pool.

        Raises:
            PoolForbidden: it is the default one or another of the operator's.
            PoolNotFound: there is none of that name.
        """
        static = static_pool(self.services, name)
        if static is not None:
            shown = static.spec.name
            if shown == "default":
                raise PoolForbidden("The default pool cannot be deleted", "DEFAULT_POOL_DELETE_FORBIDDEN")
            raise PoolForbidden(f"Pool '{shown}' is the operator's and cannot be deleted")
        try:
            await self.services.pools.delete(_checked(name))
        except (UnknownPool, PoolsUnavailable) as error:
            raise from_pools(error) from None
        self._count("deleted")
        return models.MessageResponse(message="Pool deleted")

    def _count(self, event: str) -> None:
        self.services.metrics.pool_events.labels(event).inc()


def _checked(name: str) -> str:
    """A name that no pool can have is not looked up."""
    if not NAME.match(name):
        raise PoolNotFound(name)
    return name

"""The guard: bearer tokens, compared as digests in constant time (contract K)."""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import Final

from ..errors import Failure, Forbidden, Unauthorized
from ..settings import Settings

OPERATIONAL: Final = frozenset({"health", "observability"})


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()


class Guard:
    """Decides whether a request may pass. Keeps digests of the tokens, never the tokens."""

    def __init__(self, settings: Settings) -> None:
        self.enabled = settings.auth_mode != "none"
        self.exempt_operational = settings.auth_exempt_operational
        self._tokens = tuple(_digest(token.encode()) for token in settings.auth_tokens)
        self._admin = None if settings.admin_token is None else _digest(settings.admin_token.encode())

    def check(self, authorization: bytes | None, *, admin: bool = False, tag: str = "") -> None:
        """Let the request pass or raise.

        Args:
            authorization: Value of the ``Authorization`` header.
            admin: The operation changes pools or configs.
            tag: Tag of the operation; health and observability can be exempt.

        Raises:
            Failure: 500 ``GATEWAY_AUTH_MISCONFIGURED``, no token is configured.
            Unauthorized: the token is missing or unknown.
            Forbidden: the token is good and does not open admin operations.
        """
        if not self.enabled or (self.exempt_operational and tag in OPERATIONAL):
            return
        if not self._tokens:
            raise Failure(
                500,
                "server_misconfigured",
                "Authentication is on and no token is configured",
                native="GATEWAY_AUTH_MISCONFIGURED",
                terminal=True,
            )
        scheme, _, token = (authorization or b"").strip().partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            raise Unauthorized("Missing bearer token")
        offered = _digest(token.strip())
        known = self._known(offered)
        if not admin:
            if not known:
                raise Unauthorized("Invalid token")
            return
        if self._admin is not None and compare_digest(offered, self._admin):
            return
        if not known:
            raise Unauthorized("Invalid token")
        raise Forbidden("This operation needs the admin token")

    def check_any(self, authorization: bytes | None) -> None:
        """Like ``check`` for a path that no operation has: any known token will do."""
        try:
            self.check(authorization)
        except Unauthorized:
            self.check(authorization, admin=True)

    def _known(self, offered: bytes) -> bool:
        known = False
        for token in self._tokens:
            known |= compare_digest(offered, token)
        return known

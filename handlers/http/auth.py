"""The guard: bearer tokens, compared as digests in constant time (contract K)."""

from __future__ import annotations

from hmac import compare_digest
from typing import Final

from ..errors import Failure, Forbidden, Unauthorized
from ..settings import Settings
from .tokens import Digests, Tokens, digest

OPERATIONAL: Final = frozenset({"health", "observability"})


def bearer(authorization: bytes | None) -> bytes | None:
    """The token of an ``Authorization`` header, or ``None``."""
    scheme, _, token = (authorization or b"").strip().partition(b" ")
    return (token.strip() or None) if scheme.lower() == b"bearer" else None


class Guard:
    """Decides whether a request may pass. Keeps digests of the tokens, never the tokens."""

    def __init__(self, settings: Settings) -> None:
        self.enabled = settings.auth_mode != "none"
        self.exempt_operational = settings.auth_exempt_operational
        self._tokens = Tokens(settings)

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
        if self.lets_all(tag):
            return
        tokens = self._tokens.inference()
        if not tokens:
            raise Failure(
                500,
                "server_misconfigured",
                "Authentication is on and no token is configured",
                native="GATEWAY_AUTH_MISCONFIGURED",
                terminal=True,
            )
        token = bearer(authorization)
        if token is None:
            raise Unauthorized("Missing bearer token")
        offered = digest(token)
        known = _among(offered, tokens)
        if not admin:
            if not known:
                raise Unauthorized("Invalid token")
            return
        if _among(offered, self._tokens.admin()):
            return
        if not known:
            raise Unauthorized("Invalid token")
        raise Forbidden("This operation needs the admin token")

    def lets_all(self, tag: str) -> bool:
        """Whether operations with this tag need no token."""
        return not self.enabled or (self.exempt_operational and tag in OPERATIONAL)

    def check_any(self, authorization: bytes | None) -> None:
        """Like ``check`` for a path that no operation has: any known token will do."""
        try:
            self.check(authorization)
        except Unauthorized:
            self.check(authorization, admin=True)


def _among(offered: bytes, tokens: Digests) -> bool:
    """Compares with every one, so that the time tells nothing."""
    known = False
    for token in tokens:
        known |= compare_digest(offered, token)
    return known

"""How to reach NATS, read from the environment."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping

import msgspec


class BusSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bus is and how to log in; times in seconds.

    ``url`` may be a comma list. Without it a private server is started (``EmbeddedServer``).
    ``ack_wait`` is how long a worker may be silent before its unfinished work goes to another one, ``max_deliver`` how
    often work is delivered before it is given up.
    ``memory_only``: the server keeps nothing on disk, so neither do buckets.
    """

    url: str | None = None
    token: str | None = None
    user: str | None = None
    password: str | None = None
    credentials: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    max_pending: int = 50_000
    max_bytes: int = 1 << 30
    replicas: int = 1
    ack_wait: float = 5.0
    max_deliver: int = 20
    memory_only: bool = False

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> BusSettings:
        """Read the ``SIE_NATS_*`` variables.

        Raises:
            ValueError: a number is malformed; the message names the variable.
        """

        def text(name: str) -> str | None:
            return environ.get(name, "").strip() or None

        def number(name: str, default: float) -> float:
            raw = text(name)
            try:
                value = default if raw is None else float(raw)
            except ValueError:
                value = -1.0
            if not 0.0 < value < 1e15:
                raise ValueError(f"{name}: expected a positive number, got {raw!r}")
            return value

        return cls(
            url=text("SIE_NATS_URL"),
            token=text("SIE_NATS_TOKEN"),
            user=text("SIE_NATS_USER"),
            password=text("SIE_NATS_PASSWORD"),
            credentials=text("SIE_NATS_CREDENTIALS"),
            tls_ca=text("SIE_NATS_TLS_CA"),
            tls_cert=text("SIE_NATS_TLS_CERT"),
            tls_key=text("SIE_NATS_TLS_KEY"),
            max_pending=int(number("SIE_GATEWAY_MAX_STREAM_PENDING", 50_000)),
            max_bytes=int(number("SIE_NATS_MAX_STREAM_BYTES", 1 << 30)),
            replicas=int(number("SIE_NATS_REPLICAS", 1)),
            ack_wait=number("SIE_NATS_ACK_WAIT_S", 5.0),
            max_deliver=max(1, int(number("SIE_MAX_DELIVER", 20))),
            memory_only=(text("SIE_NATS_MEMORY_ONLY") or "0") == "1",
        )

    def to_env(self) -> dict[str, str]:
        """The variables that make a child process reach the same bus."""
        names = {
            "SIE_NATS_URL": self.url,
            "SIE_NATS_TOKEN": self.token,
            "SIE_NATS_USER": self.user,
            "SIE_NATS_PASSWORD": self.password,
            "SIE_NATS_CREDENTIALS": self.credentials,
            "SIE_NATS_TLS_CA": self.tls_ca,
            "SIE_NATS_TLS_CERT": self.tls_cert,
            "SIE_NATS_TLS_KEY": self.tls_key,
            "SIE_GATEWAY_MAX_STREAM_PENDING": str(self.max_pending),
            "SIE_NATS_MAX_STREAM_BYTES": str(self.max_bytes),
            "SIE_NATS_REPLICAS": str(self.replicas),
            "SIE_NATS_ACK_WAIT_S": str(self.ack_wait),
            "SIE_MAX_DELIVER": str(self.max_deliver),
            "SIE_NATS_MEMORY_ONLY": "1" if self.memory_only else None,
        }
        return {name: value for name, value in names.items() if value is not None}

    def tls(self) -> ssl.SSLContext | None:
        """A client context when any TLS file is named, or the URL asks for TLS."""
        if not (self.tls_ca or self.tls_cert or (self.url or "").startswith("tls://")):
            return None
        context = ssl.create_default_context(cafile=self.tls_ca)
        if self.tls_cert:
            context.load_cert_chain(self.tls_cert, self.tls_key)
        return context

"""Settings of the gateway: ``SIE_*`` environment variables, read once and typed. A bad value refuses to start.

The bus and the catalog read theirs themselves (``engines.bus.settings``, ``engines.catalog``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

T = TypeVar("T")

_MODES: Mapping[str, Literal["none", "token"]] = {"": "none", "none": "none", "token": "token", "static": "token"}


class SettingError(ValueError):
    """An environment variable has a value that cannot be used. The message names the variable, never a token."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator can set. Times are in seconds, sizes in bytes; ``None`` means unset."""

    auth_mode: Literal["none", "token"] = "none"
    auth_tokens: tuple[str, ...] = ()
    auth_tokens_file: str | None = None
    admin_token: str | None = None
    admin_token_file: str | None = None
    auth_exempt_operational: bool = False
    cors_origins: tuple[str, ...] = ()

    model_aliases: dict[str, str] = {}
    gpu_aliases: dict[str, str] = {}
    gpu_types: tuple[str, ...] = ()

    queue_pools: tuple[str, ...] = ()
    max_pools: int = 1000
    pool_max_ttl: float | None = None
    pool_max_workers: int | None = None

    rate_limit_rps: float | None = None
    rate_limit_burst: float | None = None
    max_concurrent_requests: int | None = None
    max_pending_tokens: int = 100_000_000
    max_pending_tokens_per_caller: int | None = None

    default_max_tokens: int | None = None
    first_chunk_timeout: float | None = None
    inter_chunk_timeout: float | None = None
    overall_timeout: float | None = None
    request_timeout: float = 120.0

    max_body_bytes: int | None = None
    keep_alive: float = 15.0
    drain_timeout: float = 5.0
    access_log: bool = True


def read(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read all settings.

    Raises:
        SettingError: a value is malformed, or ``SIE_AUTH_MODE`` is unknown.
    """

    def take(name: str, parse: Callable[[str, str], T], default: T) -> T:
        raw = environ.get(name, "").strip()
        return default if not raw else parse(name, raw)

    return Settings(
        auth_mode=take("SIE_AUTH_MODE", _mode, "none"),
        auth_tokens=take("SIE_AUTH_TOKENS", _list, ()) or take("SIE_AUTH_TOKEN", _list, ()),
        auth_tokens_file=take("SIE_AUTH_TOKENS_FILE", _text, None),
        admin_token=take("SIE_ADMIN_TOKEN", _text, None),
        admin_token_file=take("SIE_ADMIN_TOKEN_FILE", _text, None),
        auth_exempt_operational=take("SIE_AUTH_EXEMPT_OPERATIONAL", _flag, False),
        cors_origins=take("SIE_CORS_ORIGINS", _list, ()),
        model_aliases=take("SIE_GATEWAY_MODEL_ALIASES", _table, {}),
        gpu_aliases=take("SIE_GATEWAY_GPU_ALIASES", _table, {}),
        gpu_types=take("SIE_GATEWAY_GPU_TYPES", _list, ()),
        queue_pools=take("SIE_GATEWAY_QUEUE_POOLS", _list, ()),
        max_pools=take("SIE_GATEWAY_MAX_POOLS", _count, 1000),
        pool_max_ttl=take("SIE_GATEWAY_POOL_MAX_TTL_S", _seconds, None),
        pool_max_workers=take("SIE_GATEWAY_POOL_MAX_MINIMUM_WORKER_COUNT", _count, None),
        rate_limit_rps=take("SIE_RATE_LIMIT_RPS", _number, None),
        rate_limit_burst=take("SIE_RATE_LIMIT_BURST", _number, None),
        max_concurrent_requests=take("SIE_MAX_CONCURRENT_REQUESTS", _count, None),
        max_pending_tokens=take("SIE_MAX_PENDING_TOKENS", _count, 100_000_000),
        max_pending_tokens_per_caller=take("SIE_MAX_PENDING_TOKENS_PER_CALLER", _count, None),
        default_max_tokens=take("SIE_GATEWAY_DEFAULT_MAX_TOKENS", _count, None),
        first_chunk_timeout=take("SIE_GATEWAY_FIRST_CHUNK_TIMEOUT_S", _seconds, None),
        inter_chunk_timeout=take("SIE_GATEWAY_INTER_CHUNK_TIMEOUT_S", _seconds, None),
        overall_timeout=take("SIE_GATEWAY_OVERALL_TIMEOUT_S", _seconds, None),
        request_timeout=take("SIE_GATEWAY_REQUEST_TIMEOUT", _seconds, 120.0),
        max_body_bytes=take("SIE_MAX_BODY_BYTES", _count, None),
        keep_alive=take("SIE_SSE_KEEP_ALIVE_S", _seconds, 15.0),
        drain_timeout=take("SIE_DRAIN_TIMEOUT_S", _seconds, 5.0),
        access_log=take("SIE_ACCESS_LOG", _flag, True),
    )


def _mode(name: str, raw: str) -> Literal["none", "token"]:
    try:
        return _MODES[raw.lower()]
    except KeyError:
        raise SettingError(f"{name}: unknown mode {raw!r}; use none, token or static") from None


def _text(_name: str, raw: str) -> str | None:
    return raw


def _list(_name: str, raw: str) -> tuple[str, ...]:
    return tuple(part for item in raw.split(",") if (part := item.strip()))


def _flag(name: str, raw: str) -> bool:
    if raw.lower() in {"1", "true", "yes", "on"}:
        return True
    if raw.lower() in {"0", "false", "no", "off"}:
        return False
    raise SettingError(f"{name}: expected true or false, got {raw!r}")


def _count(name: str, raw: str) -> int:
    if not raw.isascii() or not raw.isdigit() or int(raw) < 1:
        raise SettingError(f"{name}: expected a positive integer, got {raw!r}")
    return int(raw)


def _number(name: str, raw: str, what: str = "a positive number") -> float:
    try:
        number = float(raw)
    except ValueError:
        number = -1.0
    if not 0.0 < number < 1e9:
        raise SettingError(f"{name}: expected {what}, got {raw!r}")
    return number


def _seconds(name: str, raw: str) -> float:
    return _number(name, raw, "a positive number of seconds")


def _table(name: str, raw: str) -> dict[str, str]:
    try:
        table: Any = msgspec.json.decode(raw, type=dict[str, str])
    except msgspec.DecodeError:
        raise SettingError(f"{name}: expected a JSON object of strings") from None
    return dict(table)

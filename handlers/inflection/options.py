"""What an operator sets of this contract alone."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from ..settings import SettingError

PREFIX = "/inflection"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """``prefix`` is where the contract is mounted beside the first, ``None``: not at all."""

    prefix: str | None = PREFIX
    default_model: str | None = None
    allow_chat_template: bool = False


def read(environ: Mapping[str, str] = os.environ) -> Options:
    """``SIE_INFLECTION_PREFIX`` (``none``: not mounted), ``SIE_DEFAULT_MODEL``, ``SIE_ALLOW_CHAT_TEMPLATE``.

    Raises:
        SettingError: a value is malformed.
    """
    return Options(
        prefix=_prefix(environ.get("SIE_INFLECTION_PREFIX", "").strip() or PREFIX),
        default_model=environ.get("SIE_DEFAULT_MODEL", "").strip() or None,
        allow_chat_template=_flag("SIE_ALLOW_CHAT_TEMPLATE", environ.get("SIE_ALLOW_CHAT_TEMPLATE", "").strip()),
    )


def _prefix(raw: str) -> str | None:
    if raw.lower() == "none":
        return None
    steps = raw.strip("/").split("/")
    if not all(step.replace("-", "").replace("_", "").isalnum() and step.isascii() for step in steps):
        raise SettingError(f"SIE_INFLECTION_PREFIX: expected a path such as {PREFIX}, or none, got {raw!r}")
    return "/" + "/".join(steps)


def _flag(name: str, raw: str) -> bool:
    if raw.lower() in {"", "0", "false", "no", "off"}:
        return False
    if raw.lower() in {"1", "true", "yes", "on"}:
        return True
    raise SettingError(f"{name}: expected true or false, got {raw!r}")

"""How long ``litestar run`` keeps connections on which nothing happens."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import click
from litestar.plugins import CLIPlugin

from ..settings import SettingError

DEFAULT_S = 75
"""Longer than the 60 s after which balancers close what is idle: who closes last never closes under a request."""


def seconds(environ: Mapping[str, str] = os.environ) -> int:
    """``SIE_IDLE_TIMEOUT_S``.

    Raises:
        SettingError: it is not a positive integer.
    """
    raw = environ.get("SIE_IDLE_TIMEOUT_S", "").strip()
    if not raw:
        return DEFAULT_S
    if not raw.isascii() or not raw.isdigit() or int(raw) < 1:
        raise SettingError(f"SIE_IDLE_TIMEOUT_S: expected a positive integer, got {raw!r}")
    return int(raw)


class IdleConnections(CLIPlugin):
    """Gives the limit to uvicorn, for which ``litestar run`` has no option; uvicorn's own is 5 s."""

    def on_cli_init(self, cli: click.Group) -> None:
        run = cli.commands["run"]
        if run.callback is not None:
            run.callback = _with_limit(run.callback)


def _with_limit(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        import uvicorn

        limit = seconds()
        uvicorn.run = functools.partial(uvicorn.run, timeout_keep_alive=limit)
        # with several workers, or with reloading, it is started as a program
        os.environ.setdefault("UVICORN_TIMEOUT_KEEP_ALIVE", str(limit))
        return command(*arguments, **options)

    return run

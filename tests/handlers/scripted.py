"""What the fakes of the handlers' surfaces share: a catalog of given models, and rows that change a request by path."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engines.protocol.catalog import (
    Bundle,
    BundleConflict,
    ModelEntry,
    Resolved,
    UnknownBundle,
    UnknownModel,
    UnknownProfile,
)
from engines.protocol.events import Failed

DELETE: Final = object()
ABSENT: Final = object()
"""What ``at`` finds where nothing is."""


class ScriptedCatalog:
    """Some models. Names as the contract has them: ``model:profile``, ``bundle:/model``, any case."""

    epoch = 0

    def __init__(self, entries: Sequence[ModelEntry]) -> None:
        self._entries = entries

    def models(self) -> Sequence[ModelEntry]:
        return self._entries

    def bundles(self) -> Sequence[Bundle]:
        return (Bundle(name="default", engine="e", adapters=("a",)), Bundle(name="other", engine="e", adapters=("a",)))

    def resolve(self, model: str) -> Resolved:
        bundle, separator, name = model.rpartition(":/")
        name, _, wanted = name.partition(":")
        entry = next((entry for entry in self._entries if entry.name == name.lower().replace("__", "/")), None)
        if entry is None:
            raise UnknownModel(name)
        if wanted and wanted not in entry.profiles:
            raise UnknownProfile(f"Model '{entry.name}' has no profile '{wanted}'")
        if separator and bundle not in ("default", "other", "poor"):
            raise UnknownBundle(f"Unknown bundle '{bundle}'")
        if bundle == "poor":
            raise BundleConflict(f"Bundle 'poor' cannot run '{entry.name}'", entry.bundles)
        return Resolved(entry, entry.profiles[wanted or "default"], bundle or "default")


def failed(code: Any, message: str = "it went wrong", **more: Any) -> Failed:
    return Failed(request_id="", code=code, message=message, **more)


def changed(base: Any, change: Mapping[str, Any]) -> Any:
    """A copy of ``base`` with members set by path (``messages.0.role``), or deleted where the value is ``DELETE``."""
    body = copy.deepcopy(base)
    for path, value in change.items():
        *parents, last = (int(step) if step.isdigit() else step for step in path.split("."))
        at = body
        for step in parents:
            at = at[step] if isinstance(step, int) or step in at else at.setdefault(step, {})
        if value is DELETE:
            del at[last]
        else:
            at[last] = copy.deepcopy(value)
    return body


def at(value: Any, path: str) -> Any:
    """A member by path; ``ABSENT`` where there is none, which in a work item is its default that does not travel."""
    for step in path.split("."):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError):
            return ABSENT
    return value

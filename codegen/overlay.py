"""OpenAPI Overlay 1.0 (https://spec.openapis.org/overlay/v1.0.0.html), with RFC 9535 JSONPath.

Stricter than the specification in one point: an action that selects nothing is an error, because it is stale.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import jsonpath

Location: TypeAlias = tuple[str | int, ...]

_RFC9535 = jsonpath.JSONPathEnvironment(strict=True)


class OverlayError(ValueError):
    """An overlay that does not fit its document; the message names the action."""


def apply(document: Any, overlay: dict[str, Any], on_stale: Callable[[str], None] | None = None) -> Any:
    """Return a changed copy of ``document``.

    Args:
        document: parsed OpenAPI document; left as it is.
        overlay: parsed overlay document.
        on_stale: called with the name of each action that selects nothing, which is then no error.

    Raises:
        OverlayError: unsupported version, unknown or missing member, bad JSONPath, stale target, impossible merge.
    """
    version = str(overlay.get("overlay", ""))
    if not version.startswith("1.0."):
        raise OverlayError(f"unsupported overlay version {version!r}")
    if not overlay.get("actions"):
        raise OverlayError("an overlay has at least one action")
    document = copy.deepcopy(document)
    for index, action in enumerate(overlay["actions"]):
        document = _act(document, action, f"actions[{index}]", on_stale)
    return document


def _act(document: Any, action: dict[str, Any], where: str, on_stale: Callable[[str], None] | None) -> Any:
    unknown = [key for key in action if key not in ("target", "description", "update", "remove") and key[:2] != "x-"]
    if unknown:
        raise OverlayError(f"{where}: unknown member {unknown[0]!r}")
    if "target" not in action:
        raise OverlayError(f"{where}: target is missing")
    where = f"{where} {action['target']}"
    nodes = _select(document, action["target"], where)
    if not nodes:
        if on_stale is None:
            raise OverlayError(f"{where}: selects nothing")
        on_stale(where)
    if action.get("remove") is True:
        return _remove(document, [location for location, _ in nodes], where)
    if "update" in action:
        return _update(document, nodes, action["update"], where)
    return document


def _select(document: Any, path: str, where: str) -> list[tuple[Location, Any]]:
    try:
        return [(tuple(match.parts), match.obj) for match in _RFC9535.finditer(path, document)]
    except jsonpath.JSONPathError as error:
        raise OverlayError(f"{where}: {error}") from error


def _remove(document: Any, locations: list[Location], where: str) -> Any:
    # Children before parents and later array items first, so that the locations found stay right.
    for location in sorted(set(locations), key=_removal_order, reverse=True):
        if not location:
            raise OverlayError(f"{where}: the root cannot be removed")
        del _parent(document, location)[location[-1]]
    return document


def _removal_order(location: Location) -> tuple[int, list[tuple[bool, int, str]]]:
    return len(location), [(True, part, "") if isinstance(part, int) else (False, 0, part) for part in location]


def _update(document: Any, nodes: list[tuple[Location, Any]], update: Any, where: str) -> Any:
    for location, node in nodes:
        if isinstance(node, list) and not isinstance(update, list):
            node.append(copy.deepcopy(update))
            continue
        merged = _merge(node, update, where)
        if not location:
            document = merged
        elif merged is not node:
            _parent(document, location)[location[-1]] = merged
    return document


def _merge(target: Any, update: Any, where: str) -> Any:
    match target, update:
        case dict(), dict():
            for key, value in update.items():
                known = key in target
                target[key] = _merge(target[key], value, f"{where}/{key}") if known else copy.deepcopy(value)
            return target
        case list(), list():
            target.extend(copy.deepcopy(update))
            return target
        case (dict() | list(), _) | (_, dict() | list()):
            raise OverlayError(f"{where}: cannot merge {_kind(update)} into {_kind(target)}")
    return update


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    return "an array" if isinstance(value, list) else "a primitive"


def _parent(document: Any, location: Location) -> Any:
    for part in location[:-1]:
        document = document[part]
    return document

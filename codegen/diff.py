"""What a new revision of a document changes for handlers."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from codegen import schemas
from codegen.document import SCHEMAS, Document, Site, Tree
from codegen.places import EVENT_SCHEMA

_FLOORS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_CEILINGS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
# What routes and decoders read of an operation, beside its parameters, body and answers.
_OPERATION = (
    ("tags", "tag"),
    ("x-oasgate-admin", "admin token"),
    ("x-oasgate-catch-all", "catch-all path"),
    ("x-oasgate-max-body-bytes", "largest body"),
)
_OTHER = (
    *schemas.BEYOND_STRUCTS,
    *("pattern", "format", "multipleOf", "const", "propertyNames", "discriminator", "contentEncoding"),
)


class Change(msgspec.Struct, frozen=True):
    """One change.

    Attributes:
        sign: ``+`` added or wider, ``-`` removed or narrower, ``~`` different, ``?`` looks renamed.
        subject: operation or schema that it belongs to; empty for the subject itself.
        text: what changed, in words.
    """

    sign: str
    subject: str
    text: str


def compare(old: Document, new: Document) -> list[Change]:
    """Changes in operations, then in schemas, in the order of the new document."""
    return [*_operations(old, new), *_schemas(old, new)]


def report(changes: list[Change]) -> str:
    """Changes as text, grouped by subject; one line if there is none."""
    if not changes:
        return "no change for handlers\n"
    lines: list[str] = []
    subject = None
    for change in changes:
        if change.subject != subject:
            subject = change.subject
            lines.append(subject)
        lines.append(f"  {change.sign} {change.text}")
    return "\n".join(lines) + "\n"


def _operations(old: Document, new: Document) -> Iterator[Change]:
    before = {(site.path, site.method): site for site in old.operations()}
    after = {(site.path, site.method): site for site in new.operations()}
    lost = {site.node.get("operationId"): site for key, site in before.items() if key not in after}
    for key, site in after.items():
        name = site.node.get("operationId")
        previous = before.get(key) or lost.pop(name, None)
        if previous is None:
            yield Change("+", _title(site), f"new operation; answers 501 until handlers have `{name}`")
            continue
        if (previous.path, previous.method) != key:
            yield Change("~", _title(site), f"moved from {previous.method.upper()} {previous.path}")
        yield from (Change(sign, _title(site), text) for sign, text in _operation(old, previous, new, site))
    for name, site in lost.items():
        yield Change("-", _title(site), f"operation removed; `{name}` of the handlers is called no more")


def _title(site: Site) -> str:
    return f"{site.method.upper()} {site.path}"


def _operation(old: Document, before: Site, new: Document, after: Site) -> Iterator[tuple[str, str]]:
    was, now = before.node.get("operationId"), after.node.get("operationId")
    if was != now:
        yield "?", f"operation {was} looks renamed to {now}"
    for key, word in _OPERATION:
        if before.node.get(key) != after.node.get(key):
            yield "~", f"{word}: {_short(before.node.get(key))} -> {_short(after.node.get(key))}"
    guarded, guards = (
        site.node.get("security", whole.tree.get("security")) for whole, site in ((old, before), (new, after))
    )
    if guarded != guards:
        yield "~", f"security: {_short(guarded)} -> {_short(guards)}"
    yield from _parameters(old, before, new, after)
    yield from _body(old, before, new, after)
    yield from _responses(old, before.node["responses"], new, after.node["responses"])


def _parameters(old: Document, before: Site, new: Document, after: Site) -> Iterator[tuple[str, str]]:
    was = {(p["in"], p["name"].lower()): p for p, _ in old.parameters(before)}
    now = {(p["in"], p["name"].lower()): p for p, _ in new.parameters(after)}
    for key, parameter in now.items():
        label = f"{parameter['in']} parameter {parameter['name']}"
        if key not in was:
            yield "+", f"{label} ({'required' if parameter.get('required') else 'optional'})"
            continue
        if bool(was[key].get("required")) != bool(parameter.get("required")):
            yield ("-", f"{label}: made required") if parameter.get("required") else ("+", f"{label}: made optional")
        yield from _schema(old, was[key].get("schema", {}), new, parameter.get("schema", {}), label)
    for key in was.keys() - now.keys():
        yield "-", f"{was[key]['in']} parameter {was[key]['name']}"


def _body(old: Document, before: Site, new: Document, after: Site) -> Iterator[tuple[str, str]]:
    was = old.resolve(before.node.get("requestBody", {}))
    now = new.resolve(after.node.get("requestBody", {}))
    if bool(was) != bool(now):
        yield ("+", "request body") if now else ("-", "request body")
        return
    if bool(was.get("required")) != bool(now.get("required")):
        yield ("-", "request body: made required") if now.get("required") else ("+", "request body: made optional")
    yield from _content(old, was.get("content", {}), new, now.get("content", {}), "request body")


def _responses(old: Document, was: Tree, new: Document, now: Tree) -> Iterator[tuple[str, str]]:
    for status in sorted(now.keys() - was.keys()):
        content = new.resolve(now[status]).get("content", {})
        yield "+", f"answer {status}: {', '.join(_name(v.get('schema')) for v in content.values()) or 'no body'}"
    for status in sorted(was.keys() - now.keys()):
        yield "-", f"answer {status}: it can leave the server no more"
    for status in sorted(was.keys() & now.keys()):
        before, after = old.resolve(was[status]), new.resolve(now[status])
        yield from _headers(old, before.get("headers", {}), new, after.get("headers", {}), f"answer {status}")
        yield from _content(old, before.get("content", {}), new, after.get("content", {}), f"answer {status}")


def _headers(old: Document, was: Tree, new: Document, now: Tree, label: str) -> Iterator[tuple[str, str]]:
    for name in sorted(now.keys() - was.keys()):
        yield "+", f"{label}: header {name}"
    for name in sorted(was.keys() - now.keys()):
        yield "-", f"{label}: header {name}"
    for name in sorted(was.keys() & now.keys()):
        before, after = old.resolve(was[name]), new.resolve(now[name])
        if bool(before.get("required")) != bool(after.get("required")):
            yield "~", f"{label}: header {name}: made {'required' if after.get('required') else 'optional'}"
        yield from _schema(old, before.get("schema", {}), new, after.get("schema", {}), f"{label}: header {name}")


def _content(old: Document, was: Tree, new: Document, now: Tree, label: str) -> Iterator[tuple[str, str]]:
    for media in now:
        if media not in was:
            yield "+", f"{label}: media type {media}"
            continue
        for key, word in (("schema", "envelope"), (EVENT_SCHEMA, "events")):
            before, after = was[media].get(key, {}), now[media].get(key, {})
            if _name(before) != _name(after):
                yield "~", f"{label}: {word} {_name(before)} -> {_name(after)}"
            else:
                yield from _schema(old, before, new, after, label)
    for media in was:
        if media not in now:
            yield "-", f"{label}: media type {media}"


def _schemas(old: Document, new: Document) -> Iterator[Change]:
    lost = {name: old.schemas[name] for name in old.schemas if name not in new.schemas}
    for name, schema in new.schemas.items():
        subject = f"schema {name}{_users(new, name)}"
        if name in old.schemas:
            found = _schema(old, old.schemas[name], new, schema, "")
            yield from (Change(sign, subject, text) for sign, text in found)
        elif twin := next((other for other in lost if lost[other] == schema), None):
            del lost[twin]
            yield Change("?", subject, f"schema {twin} looks renamed to {name}")
        else:
            yield Change("+", subject, "new schema")
    for name in lost:
        yield Change("-", f"schema {name}{_users(old, name)}", "schema removed")


def _schema(old: Document, was: Any, new: Document, now: Any, at: str) -> Iterator[tuple[str, str]]:
    """Changes of one schema; those of schemas it refers to are reported with them."""
    if not isinstance(was, dict) or not isinstance(now, dict):
        if was != now:
            yield "~", f"{at}: {_short(was)} -> {_short(now)}"
        return
    prefix = f"{at}: " if at else ""
    if was.get("$ref") != now.get("$ref"):
        yield "~", f"{prefix}type {_name(was)} -> {_name(now)}"
        return
    same: frozenset[str] = frozenset()  # types of a reference change with its schema
    before, after = (same, same) if "$ref" in was else (schemas.types(old, was), schemas.types(new, now))
    for kind in sorted(after - before):
        yield "+", f"{prefix}{kind} allowed"
    for kind in sorted(before - after):
        yield "-", f"{prefix}{kind} refused"
    yield from ((sign, prefix + text) for sign, text in _constraints(was, now))
    yield from _members(old, was, new, now, at)
    if "items" in was or "items" in now:
        yield from _schema(old, was.get("items", {}), new, now.get("items", {}), f"{at}[]")
    yield from _branches(old, was, new, now, at)


def _constraints(was: Tree, now: Tree) -> Iterator[tuple[str, str]]:
    for key in (*_FLOORS, *_CEILINGS):
        before, after = was.get(key), now.get(key)
        if before == after:
            continue
        narrower = before is None or (after is not None and ((after > before) == (key in _FLOORS)))
        yield ("-" if narrower else "+"), f"{key} {_short(before)} -> {_short(after)} ({_word(narrower)})"
    if was.get("enum") != now.get("enum"):
        before, after = was.get("enum"), now.get("enum")
        if before is None or after is None:
            yield (
                ("-" if before is None else "+"),
                f"enum {_short(before)} -> {_short(after)} ({_word(before is None)})",
            )
        else:
            yield from (("+", f"enum value {_short(value)}") for value in after if value not in before)
            yield from (("-", f"enum value {_short(value)}") for value in before if value not in after)
    for key in _OTHER:
        if was.get(key) != now.get(key):
            yield "~", f"{key} {_short(was.get(key))} -> {_short(now.get(key))}"
    before, after = was.get("additionalProperties", True), now.get("additionalProperties", True)
    if before != after:
        if after is False:
            yield "-", "closed: unknown members are refused (narrowed)"
        elif before is False:
            yield "+", "opened: unknown members are allowed (widened)"
        else:
            yield "~", f"additionalProperties {_short(before)} -> {_short(after)}"


def _word(narrower: bool) -> str:
    return "narrowed" if narrower else "widened"


def _members(old: Document, was: Tree, new: Document, now: Tree, at: str) -> Iterator[tuple[str, str]]:
    before, after = was.get("properties", {}), now.get("properties", {})
    required = set(now.get("required", ())), set(was.get("required", ()))
    for name in sorted((required[0] ^ required[1]) - after.keys()):
        label = f"{at}.{name}" if at else name
        if name in required[0]:
            yield "-", f"field {label}: made required"
        elif name not in before:
            yield "+", f"field {label}: made optional"
    lost = {name: before[name] for name in before if name not in after}
    for name, member in after.items():
        label = f"{at}.{name}" if at else name
        if name not in before:
            twin = _twin(name, member, lost)
            if twin is not None:
                del lost[twin]
                yield "?", f"field {f'{at}.{twin}' if at else twin} looks renamed to {name}"
            word = "required" if name in required[0] else "optional"
            yield "+", f"field {label} ({word}, {_name(member)})"
            continue
        if (name in required[0]) != (name in required[1]):
            yield (
                ("-", f"field {label}: made required")
                if name in required[0]
                else ("+", f"field {label}: made optional")
            )
        yield from _schema(old, before[name], new, member, label)
    for name in before:
        if name not in after:
            yield "-", f"field {f'{at}.{name}' if at else name}"


def _twin(name: str, member: Any, lost: Tree) -> str | None:
    """The removed member that an added one most looks like."""
    same = [other for other in lost if _bare(lost[other]) == _bare(member)]
    close = difflib.get_close_matches(name, list(lost), n=1, cutoff=0.75)
    return close[0] if close else next((other for other in same if len(same) == 1), None)


def _bare(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {key: value for key, value in schema.items() if key not in schemas.ANNOTATIONS}


def _branches(old: Document, was: Tree, new: Document, now: Tree, at: str) -> Iterator[tuple[str, str]]:
    prefix = f"{at}: " if at else ""
    for key in ("oneOf", "anyOf", "allOf"):
        before, after = list(was.get(key, ())), list(now.get(key, ()))
        if bool(before) != bool(after):
            named = ", ".join(map(_branch, after or before))
            yield "~", f"{prefix}{key} {'added' if after else 'removed'}: {named}"
            continue
        for branch in after:
            twin = _take(old, before, new, branch, after)
            if twin is not None:
                place = f"{prefix}{key} branch" if _name(branch) == "any" else at
                yield from _schema(old, twin, new, branch, place)
            elif schemas.types(new, branch) != {"null"}:  # null is told with the types
                yield "+", f"{prefix}{key} branch {_branch(branch)}"
        for branch in before:
            if schemas.types(old, branch) != {"null"}:
                yield "-", f"{prefix}{key} branch {_branch(branch)}"


def _take(old: Document, before: list[Any], new: Document, branch: Any, after: list[Any]) -> Any:
    """Take the old branch that one of the new is a revision of, in any order: the same, or one of the same types."""
    alike = [one for one in before if _key(old, one) == _key(new, branch) and (one == branch or one not in after)]
    twin = next((one for one in alike if one == branch), alike[0] if alike else None)
    if twin is not None:
        before.remove(twin)
    return twin


def _branch(schema: Any) -> str:
    """Name of a branch; one without a type is told by its keywords."""
    name = _name(schema)
    return _short(_bare(schema)) if name == "any" else name


def _key(document: Document, branch: Any) -> str:
    if isinstance(branch, dict) and "$ref" in branch:
        return str(branch["$ref"])
    return "|".join(sorted(schemas.types(document, branch)))


def _users(document: Document, name: str) -> str:
    """Operations whose request or answers reach a schema, for the reader of the report."""
    found = [
        f"{part} of {site.node.get('operationId')}"
        for site in document.operations()
        for part, node in (("request", site.node.get("requestBody")), ("answers", site.node.get("responses")))
        if name in document.reached(node)
    ]
    if not found:
        return ""
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f" ({', '.join(found[:3])}{more})"


def _name(schema: Any) -> str:
    """Short name of a schema."""
    if not isinstance(schema, dict):
        return _short(schema)
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(SCHEMAS)
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return " | ".join(map(_name, schema[key]))
    declared = schema.get("type", "any")
    if declared == "array":
        return f"{_name(schema.get('items', {}))}[]"
    return "|".join(declared) if isinstance(declared, list) else str(declared)


def _short(value: Any) -> str:
    text = "none" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."

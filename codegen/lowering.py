"""Schemas of a document -> schemas that datamodel-code-generator turns into msgspec structs without loss.

Every object with named members gets a name of its own, `<Owner><Member>`, so that generated names never depend
on their order. What a struct cannot hold is left out here, and only here: `schemas.beyond_structs` lists it, and
bodies that contain it are validated a second time.
"""

from __future__ import annotations

from typing import Any

from codegen import schemas
from codegen.document import SCHEMAS, Document, Tree
from codegen.names import class_name
from codegen.patterns import python_pattern

_KEPT = frozenset(["description", "enum", "const", "required", "minLength", "maxLength", "minItems", "maxItems"])
_ANYTHING: dict[str, Tree] = {"object": {"additionalProperties": {}}, "array": {"items": {}}}
_LOWER, _UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")


class Lowering:
    """Collects the lowered schemas.

    Attributes:
        definitions: class name -> lowered schema.
        closed: names of classes that refuse unknown members.
        keyed: stand-ins for the values of maps, with the constraints of those maps' keys.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.definitions: dict[str, Tree] = {}
        self.closed: set[str] = set()
        self.keyed: dict[str, Tree] = {}
        self._components = {class_name(name) for name in document.schemas}
        self._inline: dict[str, Any] = {}
        requested = document.reached([site.node.get("requestBody") for site in document.operations()])
        for name, schema in document.schemas.items():
            self._decoded = name in requested
            self._define(class_name(name), schema)

    def name(self, schema: Any, hint: str, *, decoded: bool) -> str:
        """Name of the class (or alias) of a schema; an inline one is defined under ``hint``.

        Args:
            schema: of a body.
            hint: a name for it, if it has none.
            decoded: whether it must be decoded, as a request is; an answer is only encoded.
        """
        if isinstance(schema, dict) and "$ref" in schema:
            return class_name(schema["$ref"].removeprefix(SCHEMAS))
        self._decoded = decoded
        hint = self._free(hint, schema)
        if hint not in self.definitions:
            self._define(hint, schema)
        return hint

    def _free(self, hint: str, schema: Any) -> str:
        """A name for an inline schema that nothing else has."""
        while hint in self._components or self._inline.setdefault(hint, schema) != schema:
            hint += "Object"
        return hint

    def _define(self, name: str, schema: Any) -> None:
        if isinstance(schema, dict) and "allOf" in schema:
            schema = schemas.merged(self.document, schema) or schema
        if isinstance(schema, dict) and schemas.is_struct(schema):
            if "null" in schemas.types(self.document, schema):
                self.definitions[name] = self._inline_struct(schema, f"{name}Object")  # the name is the union's
            else:
                self.definitions[name] = self._struct(schema, name)
        else:
            self.definitions[name] = self._lower(schema, name)

    def _struct(self, schema: Tree, name: str) -> Tree:
        # What a pattern admits is for the second pass: a closed struct would refuse it.
        if schema.get("additionalProperties") is False and "patternProperties" not in schema:
            self.closed.add(name)
        lowered: Tree = {"type": "object", "properties": {}}
        if "description" in schema:
            lowered["description"] = schema["description"]
        for member, value in schema["properties"].items():
            lowered["properties"][member] = self._lower(value, name + class_name(member))
        required = [member for member in schema.get("required", ()) if member in schema["properties"]]
        if required:
            lowered["required"] = required
        return lowered

    def _lower(self, schema: Any, hint: str) -> Tree:
        if not isinstance(schema, dict):
            return {}
        if "$ref" in schema:
            return self._reference(schema)
        if "allOf" in schema:
            return self._all_of(schema, hint)
        if schemas.is_struct(schema):
            return self._inline_struct(schema, hint)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return _described(schema, self._union(schema[keyword], hint))
        return self._plain(schema, hint)

    def _reference(self, schema: Tree) -> Tree:
        lowered = {"$ref": SCHEMAS + class_name(schema["$ref"].removeprefix(SCHEMAS))}
        return _described(schema, lowered)

    def _all_of(self, schema: Tree, hint: str) -> Tree:
        if len(schema["allOf"]) == 1 and not set(schema) - schemas.ANNOTATIONS - {"allOf"}:
            return _described(schema, self._lower(schema["allOf"][0], hint))
        whole = schemas.merged(self.document, schema)
        return self._inline_struct(whole, hint) if whole else {}

    def _inline_struct(self, schema: Tree, hint: str) -> Tree:
        hint = self._free(hint, schema)
        self.definitions[hint] = self._struct(schema, hint)
        self.definitions[hint].pop("description", None)
        lowered: Tree = {"$ref": SCHEMAS + hint}
        if "null" in schemas.types(self.document, schema):
            lowered = {"oneOf": [{"type": "null"}, lowered]}
        return _described(schema, lowered)

    def _union(self, branches: list[Any], hint: str) -> Tree:
        """A union; one to decode has at most one object, one array and one kind of string and number in it."""
        present = [b for b in branches if schemas.types(self.document, b) != {"null"}]
        tagged = schemas.discriminator(self.document, present) if len(present) > 1 else None
        lowered: list[Tree] = []
        groups: dict[str, list[Tree]] = {}
        for branch in present:
            admitted = schemas.types(self.document, branch)
            if admitted == schemas.TYPES:
                return {}
            one = self._lower(branch, hint)
            for family in ("object", "array", "string", "number", "integer"):
                if family in admitted:
                    groups.setdefault("number" if family == "integer" else family, []).append(one)
                    break
            lowered.append(one)
        if self._decoded and not tagged:
            for family, members in groups.items():
                if len(members) > 1:
                    whole = all(one.get("type") == "integer" for one in members)
                    lowered = [one for one in lowered if one not in members]
                    lowered.append({"type": "integer" if whole else family, **_ANYTHING.get(family, {})})
        if any("null" in schemas.types(self.document, b) for b in branches):
            lowered.insert(0, {"type": "null"})
        if len(lowered) == 1:
            return lowered[0]
        result: Tree = {"oneOf": lowered}
        if tagged:
            mapping = {value: SCHEMAS + class_name(ref.removeprefix(SCHEMAS)) for value, ref in tagged.items() if value}
            result["discriminator"] = {"propertyName": tagged[""], "mapping": mapping}
        return result

    def _plain(self, schema: Tree, hint: str) -> Tree:
        admitted = schemas.types(self.document, schema)
        if admitted == schemas.TYPES:
            return _described(schema, {})
        lowered: Tree = {key: value for key, value in schema.items() if key in _KEPT}
        names = sorted(admitted - ({"integer"} if "number" in admitted else set()))
        lowered["type"] = names[0] if len(names) == 1 else names
        for keyword in ("enum", "const"):
            values = schema.get(keyword) if keyword == "enum" else [schema.get(keyword)]
            if keyword in schema and not schemas.literal(values or []):
                del lowered[keyword]
        if {"enum", "const"} & set(lowered):
            return _literal(lowered)
        if admitted & {"integer", "number"}:
            lowered.update(_ranges(schema, admitted))
        if "string" in admitted:
            lowered.update(_string(schema, lowered))
        if "array" in admitted:
            lowered["items"] = {} if "prefixItems" in schema else self._lower(schema.get("items", {}), f"{hint}Item")
        if "object" in admitted:
            lowered.update(self._map(schema, hint))
            lowered.pop("required", None)
        return lowered

    def _map(self, schema: Tree, hint: str) -> Tree:
        """An object without named members: a dict."""
        lowered: Tree = {}
        values = schema.get("additionalProperties")
        typed = isinstance(values, dict) and not schema.get("properties")
        value = self._lower(values, f"{hint}Value") if typed else {}
        keys = scalar(self.document.resolve(schema.get("propertyNames", {})), "string")
        if keys:
            self.keyed[f"{hint}Entry"] = keys
            self.definitions[f"{hint}Entry"] = value
            value = {"$ref": f"{SCHEMAS}{hint}Entry"}
        lowered["additionalProperties"] = value
        for keyword in ("minProperties", "maxProperties"):
            if keyword in schema:
                lowered[keyword] = schema[keyword]
        return lowered


def _described(schema: Tree, lowered: Tree) -> Tree:
    return {**lowered, "description": schema["description"]} if "description" in schema else lowered


def _literal(lowered: Tree) -> Tree:
    """An enum with null in it as a union, which is how a literal can be null."""
    values = lowered.get("enum", [lowered.get("const")])
    if None not in values and "null" not in lowered.get("type", ()):
        return lowered
    rest = [value for value in values if value is not None]
    kind = schemas.type_of(rest[0])
    branches = [{"type": kind, "enum": rest}]
    if None in values:
        branches.insert(0, {"type": "null"})
    return _described(lowered, {"oneOf": branches} if len(branches) > 1 else branches[0])


def _ranges(schema: Tree, admitted: frozenset[str]) -> Tree:
    """Ranges; an integer format is a range too, because no engine takes a larger value."""
    whole = "number" not in admitted
    lower = [(schema[key], key) for key in _LOWER if key in schema]
    upper = [(schema[key], key) for key in _UPPER if key in schema]
    if whole and (bounds := schemas.INTEGER_FORMATS.get(schema.get("format", ""))):
        lower.append((bounds[0], "minimum"))
        upper.append((bounds[1], "maximum"))
    found: Tree = {}
    # msgspec takes one bound a side: the strictest
    if lower:
        value, key = max(lower, key=lambda bound: (bound[0], bound[1] == "exclusiveMinimum"))
        found[key] = value
    if upper:
        value, key = min(upper, key=lambda bound: (bound[0], bound[1] != "exclusiveMaximum"))
        found[key] = value
    if whole and "multipleOf" in schema:
        found["multipleOf"] = schema["multipleOf"]
    return found


def _string(schema: Tree, lowered: Tree) -> Tree:
    if schema.get("format") in ("byte", "binary"):
        for keyword in ("minLength", "maxLength"):
            lowered.pop(keyword, None)
        return {"format": "binary"}
    pattern = python_pattern(schema["pattern"]) if "pattern" in schema else None
    return {"pattern": pattern} if pattern else {}


def scalar(schema: Tree, kind: str) -> Tree:
    """Constraints of a schema that admits one scalar type, as a struct enforces them."""
    if kind == "string":
        kept: Tree = {key: schema[key] for key in ("minLength", "maxLength") if key in schema}
        return {**kept, **_string(schema, kept)}
    return _ranges(schema, frozenset([kind]))

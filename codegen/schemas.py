"""What a schema means, and which part of it msgspec cannot hold.

msgspec structs enforce types, ranges, lengths, patterns, string and integer enums, required and closed objects.
Everything else needs a second look at the body with a JSON Schema validator; this module decides which bodies do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from codegen.document import Document, Tree, pointer
from codegen.patterns import python_pattern

ANNOTATIONS = frozenset(
    [
        "title",
        "description",
        "default",
        "deprecated",
        "example",
        "examples",
        "readOnly",
        "writeOnly",
        "externalDocs",
        "xml",
        "$comment",
        "contentEncoding",
        "contentMediaType",
        "discriminator",
    ]
)
CONSTRAINTS = frozenset(
    [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
    ]
)
# Keywords that no struct holds, whatever stands beside them.
BEYOND_STRUCTS = [
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "contains",
    "minContains",
    "maxContains",
    "prefixItems",
    "uniqueItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "patternProperties",
]
KEYWORDS = (
    ANNOTATIONS
    | CONSTRAINTS
    | frozenset(BEYOND_STRUCTS)
    | frozenset(
        [
            "$ref",
            "type",
            "enum",
            "const",
            "format",
            "items",
            "properties",
            "required",
            "additionalProperties",
            "propertyNames",
            "allOf",
            "anyOf",
            "oneOf",
        ]
    )
)
INTEGER_FORMATS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
PLAIN_FORMATS = frozenset(["float", "double", "binary", "byte", "password", *INTEGER_FORMATS])
TYPES = frozenset(["null", "boolean", "integer", "number", "string", "array", "object"])
SHAPES = {"object": ("properties", "additionalProperties", "propertyNames"), "array": ("items", "prefixItems")}


def types(document: Document, schema: Any) -> frozenset[str]:
    """JSON types that a schema admits; a number admits integers too."""
    schema = document.resolve(schema)
    if not isinstance(schema, dict):
        return TYPES
    found = _own_types(schema)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            found &= frozenset().union(*(types(document, branch) for branch in schema[keyword]))
    for branch in schema.get("allOf", ()):
        found &= types(document, branch)
    return found


def _own_types(schema: Tree) -> frozenset[str]:
    if "type" in schema:
        declared = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return frozenset(declared) | (frozenset(["integer"]) if "number" in declared else frozenset())
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is not None:
        return frozenset(type_of(value) for value in values)
    for name, keywords in SHAPES.items():
        if any(keyword in schema for keyword in keywords):
            return frozenset([name])
    return TYPES


def type_of(value: Any) -> str:
    """JSON type of a parsed value."""
    if isinstance(value, bool):
        return "boolean"
    names = {type(None): "null", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def without_null(document: Document, schema: Any) -> Tree:
    """The other branch, of a union with null; anything else as it is, references followed."""
    schema = document.resolve(schema)
    for keyword in ("anyOf", "oneOf"):
        rest = [branch for branch in schema.get(keyword, ()) if branch != {"type": "null"}]
        if len(rest) == 1:
            return without_null(document, rest[0])
    found: Tree = schema
    return found


def is_struct(schema: Tree) -> bool:
    """Whether a schema, seen without its references, becomes a class: an object with named members."""
    return bool(schema.get("properties")) and not isinstance(schema.get("additionalProperties"), dict)


def merged(document: Document, schema: Tree) -> Tree | None:
    """An `allOf` of objects as one object, or null; None if it is not one."""
    admitted = types(document, schema)
    if not {"object"} <= admitted <= {"object", "null"}:
        return None
    result: Tree = {key: value for key, value in schema.items() if key != "allOf"}
    result["properties"] = dict(schema.get("properties", {}))
    required = list(schema.get("required", ()))
    for part in schema["allOf"]:
        branch = document.resolve(part)
        if "allOf" in branch:
            branch = merged(document, branch) or {"allOf": []}
        if set(branch) - ANNOTATIONS - {"type", "properties", "required"} or "object" not in types(document, branch):
            return None
        if branch.get("properties") and "additionalProperties" in schema:
            return None  # which sees only the members beside it
        result["properties"] = {**result["properties"], **branch.get("properties", {})}
        required += branch.get("required", ())
    result["type"] = ["object", "null"] if "null" in admitted else "object"
    if required:
        result["required"] = list(dict.fromkeys(required))
    return result


def discriminator(document: Document, branches: list[Any]) -> dict[str, str] | None:
    """How to tell referenced objects apart by one member: {value: reference}, with the member's name under ``""``.

    None unless every branch is a reference to an object which requires the member with one string value of its own.
    """
    candidates: list[dict[str, str]] = []
    if len(branches) < 2:
        return None
    for branch in branches:
        schema = document.resolve(branch)
        if not isinstance(branch, dict) or "$ref" not in branch or not is_struct(schema):
            return None
        if "null" in types(document, schema):
            return None  # a union of its own, which has no tag
        single: dict[str, str] = {}
        for name in schema["properties"]:
            member = document.resolve(schema["properties"][name])
            values = member.get("enum", [member["const"]] if "const" in member else [])
            if name in schema.get("required", ()) and len(values) == 1 and isinstance(values[0], str):
                single[name] = values[0]
        candidates.append(single)
    for name in candidates[0]:
        values = [single.get(name) for single in candidates]
        if None not in values and len(set(values)) == len(values):
            return {"": name, **{str(value): branch["$ref"] for value, branch in zip(values, branches, strict=True)}}
    return None


def _present(document: Document, branches: list[Any]) -> list[Any]:
    return [branch for branch in branches if types(document, branch) != {"null"}]


def _tagged(document: Document) -> set[str]:
    """References to the objects that become structs with a tag."""
    found: set[str] = set()
    stack: list[Any] = [document.tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            for keyword in ("anyOf", "oneOf"):
                branches = node.get(keyword)
                if isinstance(branches, list) and (apart := discriminator(document, _present(document, branches))):
                    found |= {reference for value, reference in apart.items() if value}
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return found


def beyond_structs(document: Document, schema: Any, base: str) -> Iterator[tuple[str, str]]:
    """Yield (pointer, keyword) for all that the struct of a schema does not enforce, references followed."""
    seen: set[str] = set()
    tagged = _tagged(document)

    def visit(node: Any, at: str, told_apart: bool = False) -> Iterator[tuple[str, str]]:
        if not isinstance(node, dict):
            if node is False:
                yield at, "false"
            return
        if "$ref" in node:
            for keyword in sorted(set(node) - ANNOTATIONS - {"$ref"}):
                if not keyword.startswith("x-"):
                    yield pointer(at, keyword), keyword
            if node["$ref"] in tagged and not told_apart:
                yield at, "discriminator"  # a struct with a tag does not require it where it stands alone
            if node["$ref"] not in seen:
                seen.add(node["$ref"])
                yield from visit(document.lookup(node["$ref"]), node["$ref"][1:])
            return
        if len(node.get("allOf", ())) == 1 and not set(node) - ANNOTATIONS - {"allOf"}:
            yield from visit(node["allOf"][0], pointer(at, "allOf", 0))
            return
        if "allOf" in node and (whole := merged(document, node)) is not None:
            names = [
                name for part in (node, *map(document.resolve, node["allOf"])) for name in part.get("properties", ())
            ]
            if len(names) != len(set(names)):
                yield pointer(at, "allOf"), "allOf"
            yield from visit(whole, at)
            return
        for keyword in _own_excess(document, node):
            yield pointer(at, keyword), keyword
        for key in ("properties",):
            for name, member in node.get(key, {}).items():
                yield from visit(member, pointer(at, key, name))
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                yield from visit(node[key], pointer(at, key))
        for key in ("anyOf", "oneOf"):
            if not is_struct(node):
                branches = node.get(key, ())
                apart = bool(branches) and discriminator(document, _present(document, branches)) is not None
                for index, branch in enumerate(branches):
                    yield from visit(branch, pointer(at, key, index), apart)

    return visit(schema, base)


def _own_excess(document: Document, node: Tree) -> Iterator[str]:
    """Keywords of one schema that its Python type does not enforce."""
    own = types(document, {key: value for key, value in node.items() if key not in ("anyOf", "oneOf")})
    yield from (keyword for keyword in BEYOND_STRUCTS if keyword in node)
    if "allOf" in node:
        yield "allOf"
    for keyword in ("anyOf", "oneOf"):
        if keyword in node and not _exact_union(document, node, keyword):
            yield keyword
    if ("enum" in node and not literal(node["enum"])) or ("const" in node and not literal([node["const"]])):
        yield "enum" if "enum" in node else "const"
    if CONSTRAINTS & set(node) and ("enum" in node or "const" in node or len(own - {"null", "integer"}) > 1):
        yield min(CONSTRAINTS & set(node))
    if "pattern" in node and python_pattern(node["pattern"]) is None:
        yield "pattern"
    if "multipleOf" in node and "number" in own:
        yield "multipleOf"
    if "string" in own and node.get("format", "binary") not in PLAIN_FORMATS:
        yield "format"
    if node.get("format") in ("byte", "binary") and {"minLength", "maxLength", "pattern"} & set(node):
        yield "format"
    if "object" in own:
        yield from _object_excess(document, node)


def _object_excess(document: Document, node: Tree) -> Iterator[str]:
    members = node.get("properties", {})
    if members and {"minProperties", "maxProperties", "propertyNames"} & set(node):
        yield min({"minProperties", "maxProperties", "propertyNames"} & set(node))
    keys = document.resolve(node.get("propertyNames", {}))
    exact = ANNOTATIONS | {"type", "minLength", "maxLength", "pattern"}
    if not members and (set(keys) - exact or python_pattern(keys.get("pattern", "")) is None):
        yield "propertyNames"
    if members and isinstance(node.get("additionalProperties"), dict):
        yield "additionalProperties"
    if not members and node.get("additionalProperties") is False:
        yield "additionalProperties"
    if set(node.get("required", ())) - set(members):
        yield "required"


def _exact_union(document: Document, node: Tree, keyword: str) -> bool:
    """Whether a Python union of the branches accepts exactly what the keyword does."""
    if is_struct(node) or set(node) & {"required"}:
        return False
    branches = node[keyword]
    if discriminator(document, _present(document, branches)):
        return True
    counted = [name for branch in branches for name in types(document, branch)]
    return len(counted) == len(set(counted))


def literal(values: list[Any]) -> bool:
    """Whether `Literal` holds these values: strings, or integers, and null."""
    kinds = {type_of(value) for value in values} - {"null"}
    return kinds in ({"string"}, {"integer"})

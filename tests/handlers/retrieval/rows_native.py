"""Rows of encode, score and extract."""

from __future__ import annotations

from typing import Any, Final

from tests.handlers.scripted import ABSENT, DELETE

from .table import BASE, LONG, Row, base64_text, failures, routing

BAD: Final = (400, "INVALID_REQUEST")
REFUSED: Final = (400, "INVALID_INPUT")
PNG: Final = b"\x89PNG"
FAILED: Final[dict[str, tuple[int, str]]] = {
    "INVALID_INPUT": (400, "INVALID_INPUT"),
    "PAYLOAD_TOO_LARGE": (413, "PAYLOAD_TOO_LARGE"),
    "inference_error": (500, "INTERNAL_SERVER_ERROR"),
    "MODEL_LOAD_FAILED": (502, "MODEL_LOAD_FAILED"),
    "MODEL_LOADING": (503, "MODEL_LOADING"),
    "LORA_LOADING": (503, "LORA_LOADING"),
    "RESOURCE_EXHAUSTED": (503, "RESOURCE_EXHAUSTED"),
    "transport_failure": (503, "QUEUE_UNAVAILABLE"),
    "no worker": (503, "PROVISIONING"),
    "too much waits": (503, "QUEUE_UNAVAILABLE"),
    "no queue": (503, "QUEUE_UNAVAILABLE"),
    "overall_timeout": (504, "GATEWAY_TIMEOUT"),
}
"""Status and code in the native envelopes (contract A.5)."""


def inputs(path: str, at: str) -> list[Row]:
    """Rules of one input: of ``items.0``, or of the query."""
    place = at.replace(".0", "[0]")
    image, document = f"{place}.images[0]", f"{place}.document"
    png = {"data": PNG}

    def refused(name: str, member: str, value: Any, param: str, code: tuple[int, str] = BAD) -> Row:
        return Row(path, f"{place}: {name}", {f"{at}.{member}": value}, *code, param)

    def taken(name: str, member: str, value: Any, **more: Any) -> Row:
        return Row(path, f"{place}: {name}", {f"{at}.{member}": value}, **more)

    pictures = [
        taken(
            "an image in base64",
            "images",
            [{"data": base64_text(PNG), "format": "png"}],
            reaches={f"{at}.images": [png | {"format": "png"}]},
        ),
        taken(
            "an image as byte values",
            "images",
            [{"data": [*PNG], "format": None}],
            reaches={f"{at}.images": [png]},
        ),
    ]
    if "/extract/" in path:
        # the model takes them, for other operations
        pictures = [refused("an image", "images", [{"data": base64_text(PNG)}], f"{place}.images", REFUSED)]
    return [
        refused("id a number", "id", 1, f"{place}.id"),
        taken("id null", "id", None, reaches={f"{at}.id": ABSENT}),
        taken("id", "id", "mine", reaches={f"{at}.id": "mine"}),
        taken("text", "text", "e\u0301", reaches={f"{at}.text": "e\u0301"}),
        taken("text null", "text", None, reaches={f"{at}.text": ABSENT}),
        refused("text a number", "text", 1, f"{place}.text"),
        taken("metadata", "metadata", {"any": [1]}, inert=True),
        taken("an unknown key", "other", 1, inert=True),
        taken("audio null", "audio", None, inert=True),
        *(
            refused(kind, kind, {"data": "AA=="}, f"{place}.{kind}", REFUSED)
            for kind in ("audio", "video", "documents", "multivector")
        ),
        taken("images null", "images", None, inert=True),
        refused("images a string", "images", "AA==", f"{place}.images"),
        refused("an image without data", "images", [{}], f"{image}.data"),
        refused("an image's data null", "images", [{"data": None}], f"{image}.data"),
        refused("an image in bad base64", "images", [{"data": "!"}], f"{image}.data"),
        refused("an image of no bytes", "images", [{"data": ""}], f"{image}.data"),
        refused("an image with a byte of 256", "images", [{"data": [256]}], f"{image}.data[0]"),
        refused("an image's format a number", "images", [{"data": "AA==", "format": 1}], f"{image}.format"),
        *pictures,
        taken("document null", "document", None, inert=True),
        refused("document a string", "document", "AA==", document),
        refused("a document without data", "document", {}, f"{document}.data"),
        refused("a document in bad base64", "document", {"data": "!"}, f"{document}.data"),
        refused("a document of no bytes", "document", {"data": ""}, f"{document}.data"),
        refused("a document's format a number", "document", {"data": "AA==", "format": 1}, f"{document}.format"),
        taken(
            "a document in base64",
            "document",
            {"data": base64_text(b"%PDF"), "format": "pdf"},
            reaches={f"{at}.document": b"%PDF", f"{at}.document_format": "pdf"},
        ),
    ]


def items(path: str, most: int, text_only: str) -> list[Row]:
    """Rules that encode, score and extract share. ``text_only``: a model that takes neither images nor documents."""
    model = path.partition("/org/")[0]
    media = {"items": [{"images": [{"data": "AA=="}]}]}, {"items": [{"document": {"data": "AA=="}}]}
    base = BASE[path]

    def elsewhere(name: str, at: str, status: int = 200, code: str | None = None, **more: Any) -> Row:
        return Row(at, name, {}, status, code, body=more.pop("body", base), **more)

    return [
        Row(path, "the least", reaches={"items.0.text": "one", "items.1.id": "b"}, answers={"model": "org/all"}),
        Row(path, "items absent", {"items": DELETE}, *BAD, "items"),
        Row(path, "items empty", {"items": []}, *BAD, "items"),
        Row(path, "items null", {"items": None}, *BAD, "items"),
        Row(path, "items an object", {"items": {}}, *BAD, "items"),
        Row(path, "the most items", {"items": [{"text": "a"}] * most}, reaches={f"items.{most - 1}": {"text": "a"}}),
        Row(path, "one item too many", {"items": [{"text": "a"}] * (most + 1)}, *BAD, "items"),
        Row(path, "an item that is a string", {"items": ["a"]}, *BAD, "items[0]"),
        *inputs(path, "items.0"),
        Row(
            text_only,
            "an image that the model does not take",
            body={**base, **media[0]},
            status=400,
            code="INVALID_INPUT",
            param="items[0].images",
        ),
        Row(
            text_only,
            "a document that the model does not take",
            body={**base, **media[1]},
            status=400,
            code="INVALID_INPUT",
            param="items[0].document",
        ),
        Row(path, "an unknown top-level key", {"other": 1}, inert=True),
        Row(path, "a body that is an array", body=[], status=400, code="INVALID_REQUEST"),
        Row(path, "a body that is a string", body="x", status=400, code="INVALID_REQUEST"),
        elsewhere("model unknown", f"{model}/org/none", 404, "MODEL_NOT_FOUND"),
        elsewhere("model without the task", f"{model}/org/chat", *REFUSED, param="model"),
        elsewhere("model with a bundle", path.replace("/org/", "/other:/org/"), reaches={"bundle": "other"}),
        elsewhere("bundle that conflicts", path.replace("/org/", "/poor:/org/"), 409, "BUNDLE_ROUTING_CONFLICT"),
        elsewhere("bundle unknown", path.replace("/org/", "/none:/org/"), 404, "BUNDLE_NOT_FOUND"),
        elsewhere("an encoded slash", path.replace("/org/", "/org%2F"), reaches={"model": "org/all"}),
        elsewhere("underscores", path.replace("/org/", "/org__"), reaches={"model": "org/all"}),
        elsewhere("model with a profile", f"{path}:small", reaches={"profile": "small"}),
        elsewhere("model with an unknown profile", f"{path}:none", 400, "INVALID_REQUEST"),
        *routing(path, "INVALID_REQUEST", "POOL_NOT_FOUND", "GPU_NOT_CONFIGURED"),
        *failures(path, FAILED),
    ]


def options(path: str, at: str) -> list[Row]:
    """Rules of the free-form options that every native operation has, at ``at``."""
    profile, instruction = f"{at}.profile", f"{at}.instruction"
    return [
        Row(path, f"{at} null", {at: None}, inert=True),
        Row(path, f"{at} empty", {at: {}}, inert=True),
        Row(path, f"{at} an array", {at: []}, *BAD, at),
        Row(path, f"{at} a string", {at: "x"}, *BAD, at),
        Row(path, f"{at} of the model's own", {f"{at}.threshold": 0.5}, reaches={"options.threshold": 0.5}),
        Row(path, profile, {profile: "small"}, reaches={"profile": "small"}),
        Row(path, f"{profile} null", {profile: None}, inert=True),
        Row(path, f"{profile} blank", {profile: " "}, *REFUSED, profile),
        Row(path, f"{profile} a number", {profile: 1}, *REFUSED, profile),
        Row(path, f"{profile} unknown", {profile: "none"}, *REFUSED),
        Row(path, instruction, {instruction: "be good"}, reaches={"instruction": "be good"}),
        Row(path, f"{instruction} a number", {instruction: 1}, *REFUSED, instruction),
    ]


def instruction(path: str, at: str) -> list[Row]:
    """The instruction and its place before that of the options."""
    both = {at: "be good", f"{at.replace('instruction', 'options')}.instruction": "be bad"}
    return [
        Row(path, at, {at: "be good"}, reaches={"instruction": "be good"}),
        Row(path, f"{at} before that of the options", both, reaches={"instruction": "be good"}),
        Row(path, f"{at} null", {at: None}, inert=True),
        Row(path, f"{at} a number", {at: 1}, *BAD, at),
    ]


def params(path: str) -> list[Row]:
    """Rules of ``params`` that encode and extract share."""
    return [
        Row(path, "params null", {"params": None}, inert=True),
        Row(path, "params empty", {"params": {}}, inert=True),
        Row(path, "params a string", {"params": "x"}, *BAD, "params"),
        Row(path, "an unknown param", {"params.other": 1}, inert=True),
        *instruction(path, "params.instruction"),
        *options(path, "params.options"),
    ]


def encode() -> list[Row]:
    path, types, dtype = "/v1/encode/org/all", "params.output_types", "params.output_dtype"
    option, query, lora = "params.options.output_dtype", "params.options.is_query", "params.options.lora"
    one = {"items": [{"text": "a"}]}
    rows = items(path, 4096, "/v1/encode/org/embed") + params(path)
    rows += [
        Row(path, f"{types} null", {types: None}, inert=True),
        Row(path, f"{types} empty", {types: []}, inert=True),
        Row(
            path,
            "all output types",
            {types: ["dense", "sparse", "multivector"]},
            reaches={"output_types": ["dense", "sparse", "multivector"]},
            answers={
                "items.0.dense.dims": 4,
                "items.0.sparse.indices": [1, 3],
                "items.0.multivector.values": [[3.0, 0.0, 1.0]] * 2,
            },
        ),
        Row(path, "an output type twice", {types: ["sparse", "sparse"]}, reaches={"output_types": ["sparse"]}),
        Row(path, "an unknown output type", {types: ["lexical"]}, *BAD, f"{types}[0]"),
        Row(path, f"{types} a string", {types: "dense"}, *BAD, types),
        Row(
            "/v1/encode/org/embed",
            "an output type that the model lacks",
            body=one | {"params": {"output_types": ["sparse"]}},
            status=400,
            code="INVALID_INPUT",
            param=types,
        ),
        Row(
            "/v1/encode/org/sparse",
            "the default output type, which the model lacks",
            body=one,
            status=400,
            code="INVALID_INPUT",
            param=types,
        ),
        Row(path, f"{dtype} float32", {dtype: "float32"}, inert=True),
        Row(path, f"{dtype} null", {dtype: None}, inert=True),
        *(
            Row(
                path,
                f"{dtype} {name}",
                {dtype: name},
                reaches={"output_dtype": name},
                answers={"items.0.dense.dtype": name},
            )
            for name in ("float16", "int8", "uint8", "binary")
        ),
        Row(path, f"an unknown {dtype}", {dtype: "int4"}, *BAD, dtype),
        Row(path, option, {option: "int8"}, reaches={"output_dtype": "int8"}),
        Row(
            path,
            f"{dtype} before that of the options",
            {dtype: "uint8", option: "int8"},
            reaches={"output_dtype": "uint8"},
        ),
        Row(path, f"an unknown {option}", {option: "int4"}, *REFUSED, option),
        Row(path, query, {query: True}, reaches={"is_query": True}),
        Row(path, f"{query} null", {query: None}, inert=True),
        Row(path, f"{query} a string", {query: "yes"}, *REFUSED, query),
        Row(path, lora, {lora: "legal"}, reaches={"options.lora": "legal"}),
        Row(path, f"{lora} unknown", {lora: "none"}, 400, None, lora),
        Row(path, "the ids come back", {"items.0.id": "a"}, answers={"items.0.id": "a", "items.1.id": "b"}),
        Row(path, "no id, none comes back", {}, answers={"items.0.id": ABSENT}),
    ]
    return rows


def score() -> list[Row]:
    path, length = "/v1/score/org/all", "options.max_seq_length"
    rows = items(path, 1000, "/v1/score/org/rerank") + instruction(path, "instruction") + options(path, "options")
    return rows + [
        Row(path, "query absent", {"query": DELETE}, *BAD, "query"),
        Row(path, "query a string", {"query": "q"}, *BAD, "query"),
        Row(path, "query null", {"query": None}, *BAD, "query"),
        *inputs(path, "query"),
        Row(path, "the query's id comes back", {"query.id": "q-1"}, answers={"query_id": "q-1"}),
        Row(
            path,
            "items by falling score, with their ids or numbers",
            answers={
                "scores.0": {"item_id": "b", "score": 5.0, "rank": 0},
                "scores.1": {"item_id": "item-0", "score": 3.0, "rank": 1},
                "query_id": ABSENT,
            },
        ),
        Row(path, length, {length: 64}, reaches={"max_sequence_length": 64, "options": ABSENT}),
        Row(path, f"{length} 64.0", {length: 64.0}, reaches={"max_sequence_length": 64}),
        Row(path, f"{length} 0", {length: 0}, *REFUSED, length),
        Row(path, f"{length} a boolean", {length: True}, *REFUSED, length),
        Row(path, f"{length} over 32 bits", {length: LONG}, *REFUSED, length),
        Row(path, "usage", answers={"usage.input_tokens": 7}),
    ]


def extract() -> list[Row]:
    path, labels, schema = "/v1/extract/org/all", "params.labels", "params.output_schema"
    many = [f"l{i}" for i in range(1001)]
    return (
        items(path, 4096, "/v1/extract/org/extract")
        + params(path)
        + [
            Row(path, labels, {labels: ["person", "city"]}, reaches={"labels": ["person", "city"]}),
            Row(path, f"{labels} null", {labels: None}, inert=True),
            Row(path, f"{labels} empty", {labels: []}, reaches={"labels": []}),
            Row(path, f"1000 {labels}", {labels: many[1:]}, reaches={"labels": many[1:]}),
            Row(path, f"1001 {labels}", {labels: many}, *BAD, labels),
            Row(path, "a label that is a number", {labels: ["a", 1]}, *BAD, f"{labels}[1]"),
            Row(path, "a blank label", {labels: ["a", " "]}, *BAD, f"{labels}[1]"),
            Row(path, f"{labels} a string", {labels: "person"}, *BAD, labels),
            Row(path, schema, {schema: {"type": "object"}}, reaches={"output_schema": {"type": "object"}}),
            Row(path, f"{schema} null", {schema: None}, inert=True),
            Row(path, f"{schema} an array", {schema: []}, *BAD, schema),
            Row(path, "ids or numbers", answers={"items.0.id": "item-0", "items.1.id": "b"}),
            Row(path, "arrays that are empty", answers={"items.0.relations": [], "items.0.classifications": []}),
        ]
    )

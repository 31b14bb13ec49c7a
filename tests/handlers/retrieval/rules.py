"""The table of the retrieval surface: one row per field and rule of its eight operations.

A row changes a request that works (``delete`` and ``put`` on the body, by path) and says what must come of it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.handlers.scripted import DELETE, changed

LONG: Final = 2**31

BASE: Final[Mapping[str, Any]] = {
    "/v1/embeddings": {"model": "org/embed", "input": ["one", "three"]},
    "/v1/rerank": {"model": "org/rerank", "query": "q", "documents": ["one", "three"]},
    "/v2/rerank": {"model": "org/rerank", "query": "q", "documents": ["one", "three"]},
    "/v1/encode/org/all": {"items": [{"text": "one"}, {"id": "b", "text": "three"}]},
    "/v1/score/org/rerank": {"query": {"text": "q"}, "items": [{"text": "one"}, {"id": "b", "text": "three"}]},
    "/v1/extract/org/extract": {"items": [{"text": "one"}, {"id": "b", "text": "three"}]},
}


@dataclass(frozen=True)
class Row:
    """``code`` and ``param`` are compared where the surface's envelope has them."""

    path: str
    name: str
    change: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    code: str | None = None
    param: str | None = None
    body: Any = None

    @property
    def id(self) -> str:
        return f"{self.path}: {self.name}"

    def request(self) -> Any:
        """The body to send."""
        if self.body is not None:
            return self.body
        return changed(BASE[self.path], self.change)


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def embeddings() -> list[Row]:
    path, bad, lost = "/v1/embeddings", (400, "invalid_request"), (404, "model_not_found")
    return [
        Row(path, "an array of strings"),
        Row(path, "one string", {"input": "one"}),
        Row(path, "an empty string", {"input": ""}),
        Row(path, "an array of one empty string", {"input": [""]}),
        Row(path, "one empty string among others", {"input": ["a", "", "b"]}),
        Row(path, "256 inputs", {"input": ["a"] * 256}),
        Row(path, "257 inputs", {"input": ["a"] * 257}, *bad, "input"),
        Row(path, "6000 inputs", {"input": ["a"] * 6000}, *bad, "input"),
        Row(path, "no inputs", {"input": []}, *bad, "input"),
        Row(path, "token ids", {"input": [1, 2, 3]}, *bad, "input"),
        Row(path, "arrays of token ids", {"input": [[1, 2], [3]]}, *bad, "input"),
        Row(path, "a string and a number", {"input": ["a", 1]}, *bad, "input"),
        Row(path, "a string and null", {"input": ["a", None]}, *bad, "input"),
        Row(path, "input null", {"input": None}, *bad, "input"),
        Row(path, "input an object", {"input": {}}, *bad, "input"),
        Row(path, "input absent", {"input": DELETE}, *bad, "input"),
        Row(path, "model absent", {"model": DELETE}, *bad, "model"),
        Row(path, "model empty", {"model": ""}, *bad, "model"),
        Row(path, "model a number", {"model": 1}, *bad, "model"),
        Row(path, "model null", {"model": None}, *bad, "model"),
        Row(path, "model with a parent step", {"model": "org/../embed"}, *bad, "model"),
        Row(path, "model with a backslash", {"model": "org\\embed"}, *bad, "model"),
        Row(path, "model with a leading slash", {"model": "/org/embed"}, *bad, "model"),
        Row(path, "model with a newline", {"model": "org/embed\n"}, *bad, "model"),
        Row(path, "model unknown", {"model": "org/none"}, *lost, "model"),
        Row(path, "model in another case", {"model": "ORG/Embed"}),
        Row(path, "model with underscores", {"model": "org__embed"}),
        Row(path, "model with a profile", {"model": "org/embed:small"}),
        Row(path, "model with an unknown profile", {"model": "org/embed:none"}, 400, "invalid_request"),
        Row(path, "model with a bundle", {"model": "other:/org/embed"}),
        Row(path, "model with an unknown bundle", {"model": "none:/org/embed"}, 404, "invalid_request"),
        Row(path, "model with a bundle that conflicts", {"model": "poor:/org/embed"}, 409, "invalid_request"),
        Row(path, "model that does not embed", {"model": "org/chat"}, *bad, "model"),
        Row(path, "model without dense vectors", {"model": "org/sparse"}, *bad, "model"),
        Row(path, "format float", {"encoding_format": "float"}),
        Row(path, "format base64", {"encoding_format": "base64"}),
        Row(path, "format null", {"encoding_format": None}),
        Row(path, "format unknown", {"encoding_format": "hex"}, *bad, "encoding_format"),
        Row(path, "format a number", {"encoding_format": 1}, *bad, "encoding_format"),
        Row(path, "dimensions ignored", {"dimensions": 7}),
        Row(path, "dimensions 0", {"dimensions": 0}),
        Row(path, "dimensions null", {"dimensions": None}),
        Row(path, "dimensions 256.0", {"dimensions": 256.0}),
        Row(path, "dimensions negative", {"dimensions": -1}, *bad, "dimensions"),
        Row(path, "dimensions over 32 bits", {"dimensions": LONG}, *bad, "dimensions"),
        Row(path, "dimensions text", {"dimensions": "1"}, *bad, "dimensions"),
        Row(path, "user ignored", {"user": "me"}),
        Row(path, "user null", {"user": None}),
        Row(path, "user a number", {"user": 1}, *bad, "user"),
        Row(path, "an unknown field, which this surface alone takes", {"truncate": "END"}),
        Row(path, "a body that is an array", body=[], status=400, code="invalid_request"),
    ]


def rerank(path: str) -> list[Row]:
    rows = [
        Row(path, "the least"),
        Row(path, "model absent", {"model": DELETE}, 400, param="model"),
        Row(path, "model blank", {"model": "  "}, 400, param="model"),
        Row(path, "model empty", {"model": ""}, 400, param="model"),
        Row(path, "model null", {"model": None}, 400, param="model"),
        Row(path, "model a number", {"model": 1}, 400, param="model"),
        Row(path, "model unknown", {"model": "org/none"}, 404),
        Row(path, "model that does not score", {"model": "org/chat"}, 400, param="model"),
        Row(path, "model with a bundle", {"model": "other:/org/rerank"}),
        Row(path, "model with a bundle that conflicts", {"model": "poor:/org/rerank"}, 409),
        Row(path, "model with a profile", {"model": "org/rerank:small"}),
        Row(path, "model with an unknown profile", {"model": "org/rerank:none"}, 400, param="profile"),
        Row(path, "query absent", {"query": DELETE}, 400, param="query"),
        Row(path, "query blank", {"query": " \n\t"}, 400, param="query"),
        Row(path, "query an object", {"query": {"text": "q"}}, 400, param="query"),
        Row(path, "query null", {"query": None}, 400, param="query"),
        Row(path, "documents absent", {"documents": DELETE}, 400, param="documents"),
        Row(path, "documents empty", {"documents": []}, 400, param="documents"),
        Row(path, "documents null", {"documents": None}, 400, param="documents"),
        Row(path, "documents one string", {"documents": "one"}, 400, param="documents"),
        Row(path, "1000 documents", {"documents": ["d"] * 1000}),
        Row(path, "1001 documents", {"documents": ["d"] * 1001}, 400, param="documents"),
        Row(path, "a blank document", {"documents": ["a", " "]}, 400, param="documents[1]"),
        Row(path, "an empty document", {"documents": ["a", ""]}, 400, param="documents[1]"),
        Row(path, "a document that is an object", {"documents": [{"text": "a"}]}, 400, param="documents[0]"),
        Row(path, "top_n", {"top_n": 1}),
        Row(path, "top_n over the number of documents", {"top_n": 99}),
        Row(path, "top_n 1.0", {"top_n": 1.0}),
        Row(path, "top_n null", {"top_n": None}),
        Row(path, "top_n 0", {"top_n": 0}, 400, param="top_n"),
        Row(path, "top_n negative", {"top_n": -1}, 400, param="top_n"),
        Row(path, "top_n 1.5", {"top_n": 1.5}, 400, param="top_n"),
        Row(path, "top_n text", {"top_n": "1"}, 400, param="top_n"),
        Row(path, "top_n a boolean", {"top_n": True}, 400, param="top_n"),
        Row(path, "options null", {"options": None}),
        Row(path, "options empty", {"options": {}}),
        Row(path, "options a string", {"options": "x"}, 400, param="options"),
        Row(path, "options with an unknown key", {"options": {"batch": 1}}, 400, param="options.batch"),
        Row(path, "options.profile", {"options": {"profile": "small"}}),
        Row(path, "options.profile null", {"options": {"profile": None}}),
        Row(path, "options.profile blank", {"options": {"profile": " "}}, 400, param="options.profile"),
        Row(path, "options.profile unknown", {"options": {"profile": "none"}}, 400, param="options.profile"),
        Row(path, "options.max_seq_length", {"options": {"max_seq_length": 64}}),
        Row(path, "options.max_seq_length null", {"options": {"max_seq_length": None}}),
        Row(path, "options.max_seq_length 0", {"options": {"max_seq_length": 0}}, 400, param="options.max_seq_length"),
        Row(path, "an unknown field", {"rank_fields": ["a"]}, 400, param="rank_fields"),
        Row(path, "a body that is an array", body=[], status=400),
    ]
    if path == "/v1/rerank":
        return rows + [
            Row(path, "return_documents", {"return_documents": True}),
            Row(path, "return_documents null", {"return_documents": None}),
            Row(path, "return_documents a string", {"return_documents": "yes"}, 400, param="return_documents"),
            Row(path, "max_chunks_per_doc", {"max_chunks_per_doc": 1}, 400, param="max_chunks_per_doc"),
        ]
    return rows + [
        Row(path, "return_documents", {"return_documents": True}, 400, param="return_documents"),
        Row(path, "max_tokens_per_doc null", {"max_tokens_per_doc": None}),
        Row(path, "max_tokens_per_doc", {"max_tokens_per_doc": 9}, 400, param="max_tokens_per_doc"),
        Row(path, "priority null", {"priority": None}),
        Row(path, "priority", {"priority": 1}, 400, param="priority"),
        Row(path, "relevant_spans", {"relevant_spans": True}, 400, param="relevant_spans"),
    ]


def items(path: str, most: int) -> list[Row]:
    """Rules that encode, score and extract share."""
    bad = (400, "INVALID_REQUEST")
    model = path.partition("/org/")[0]
    return [
        Row(path, "the least"),
        Row(path, "items absent", {"items": DELETE}, *bad, "items"),
        Row(path, "items empty", {"items": []}, *bad, "items"),
        Row(path, "items null", {"items": None}, *bad, "items"),
        Row(path, "items an object", {"items": {}}, *bad, "items"),
        Row(path, "the most items", {"items": [{"text": "a"}] * most}),
        Row(path, "one item too many", {"items": [{"text": "a"}] * (most + 1)}, *bad, "items"),
        Row(path, "an item that is a string", {"items": ["a"]}, *bad, "items[0]"),
        Row(path, "an item's id a number", {"items.0.id": 1}, *bad, "items[0].id"),
        Row(path, "an item's id null", {"items.0.id": None}),
        Row(path, "an item's text null", {"items.0.text": None}),
        Row(path, "an item's text a number", {"items.0.text": 1}, *bad, "items[0].text"),
        Row(path, "an item's metadata", {"items.0.metadata": {"any": [1]}}),
        Row(path, "an item's unknown key", {"items.0.other": 1}),
        Row(path, "audio null", {"items.0.audio": None}),
        *(
            Row(path, kind, {f"items.0.{kind}": {"data": "AA=="}}, 400, "INVALID_INPUT", f"items[0].{kind}")
            for kind in ("audio", "video", "documents", "multivector")
        ),
        Row(path, "images null", {"items.0.images": None}),
        Row(path, "an image without data", {"items.0.images": [{}]}, *bad, "items[0].images[0].data"),
        Row(
            path,
            "an image's format a number",
            {"items.0.images": [{"data": "AA==", "format": 1}]},
            *bad,
            "items[0].images[0].format",
        ),
        Row(path, "an image in bad base64", {"items.0.images": [{"data": "!"}]}, *bad, "items[0].images[0].data"),
        Row(
            path,
            "an image with a byte of 256",
            {"items.0.images": [{"data": [256]}]},
            *bad,
            "items[0].images[0].data[0]",
        ),
        Row(path, "an image's data null", {"items.0.images": [{"data": None}]}, *bad, "items[0].images[0].data"),
        Row(path, "document null", {"items.0.document": None}),
        Row(path, "a document without data", {"items.0.document": {}}, *bad, "items[0].document.data"),
        Row(path, "a document in bad base64", {"items.0.document": {"data": "!"}}, *bad, "items[0].document.data"),
        Row(path, "an unknown top-level key", {"other": 1}),
        Row(path, "a body that is an array", body=[], status=400, code="INVALID_REQUEST"),
        Row(path, "a body that is a string", body="x", status=400, code="INVALID_REQUEST"),
        Row(f"{model}/org/none", "model unknown", body=BASE[path], status=404, code="MODEL_NOT_FOUND"),
        Row(
            f"{model}/org/chat",
            "model without the task",
            body=BASE[path],
            status=400,
            code="INVALID_INPUT",
            param="model",
        ),
        Row(f"{model}/none:/{path.partition('/org/')[2]}", "model unknown under a bundle", body=BASE[path], status=404),
        Row(path.replace("/org/", "/other:/org/"), "model with a bundle", body=BASE[path]),
        Row(
            path.replace("/org/", "/poor:/org/"),
            "model with a bundle that conflicts",
            body=BASE[path],
            status=409,
            code="BUNDLE_ROUTING_CONFLICT",
        ),
        Row(
            path.replace("/org/", "/none:/org/"),
            "model with an unknown bundle",
            body=BASE[path],
            status=404,
            code="BUNDLE_NOT_FOUND",
        ),
        Row(path.replace("/org/", "/org%2F"), "model with an encoded slash", body=BASE[path]),
        Row(path.replace("/org/", "/org__"), "model with underscores", body=BASE[path]),
        Row(f"{path}:small", "model with a profile", body=BASE[path]),
        Row(f"{path}:none", "model with an unknown profile", body=BASE[path], status=400),
    ]


def params(path: str) -> list[Row]:
    """Rules of ``params`` that encode and extract share."""
    bad, refused = (400, "INVALID_REQUEST"), (400, "INVALID_INPUT")
    return [
        Row(path, "params null", {"params": None}),
        Row(path, "params empty", {"params": {}}),
        Row(path, "params a string", {"params": "x"}, *bad, "params"),
        Row(path, "an unknown param", {"params.other": 1}),
        Row(path, "instruction", {"params.instruction": "be good"}),
        Row(path, "instruction null", {"params.instruction": None}),
        Row(path, "instruction a number", {"params.instruction": 1}, *bad, "params.instruction"),
        Row(path, "options null", {"params.options": None}),
        Row(path, "options empty", {"params.options": {}}),
        Row(path, "options an array", {"params.options": []}, *bad, "params.options"),
        Row(path, "options a string", {"params.options": "x"}, *bad, "params.options"),
        Row(path, "options.profile", {"params.options.profile": "small"}),
        Row(path, "options.profile null", {"params.options.profile": None}),
        Row(path, "options.profile blank", {"params.options.profile": " "}, *refused, "params.options.profile"),
        Row(path, "options.profile a number", {"params.options.profile": 1}, *refused, "params.options.profile"),
        Row(path, "options.profile unknown", {"params.options.profile": "none"}, *refused),
        Row(path, "options.instruction", {"params.options.instruction": "be good"}),
        Row(
            path,
            "options.instruction a number",
            {"params.options.instruction": 1},
            *refused,
            "params.options.instruction",
        ),
    ]


def encode() -> list[Row]:
    path, bad, refused = "/v1/encode/org/all", (400, "INVALID_REQUEST"), (400, "INVALID_INPUT")
    rows = items(path, 4096) + params(path)
    rows += [
        Row(path, "output_types null", {"params.output_types": None}),
        Row(path, "output_types empty", {"params.output_types": []}),
        Row(path, "all output types", {"params.output_types": ["dense", "sparse", "multivector"]}),
        Row(path, "an output type twice", {"params.output_types": ["dense", "dense"]}),
        Row(path, "an unknown output type", {"params.output_types": ["lexical"]}, *bad, "params.output_types[0]"),
        Row(path, "output_types a string", {"params.output_types": "dense"}, *bad, "params.output_types"),
        Row(
            "/v1/encode/org/embed",
            "an output type that the model lacks",
            body={"items": [{"text": "a"}], "params": {"output_types": ["sparse"]}},
            status=400,
            code="INVALID_INPUT",
            param="params.output_types",
        ),
        Row(
            "/v1/encode/org/sparse",
            "the default output type, which the model lacks",
            body={"items": [{"text": "a"}]},
            status=400,
            code="INVALID_INPUT",
            param="params.output_types",
        ),
        *(
            Row(path, f"output_dtype {dtype}", {"params.output_dtype": dtype})
            for dtype in ("float32", "float16", "int8", "uint8", "binary", None)
        ),
        Row(path, "an unknown output_dtype", {"params.output_dtype": "int4"}, *bad, "params.output_dtype"),
        Row(path, "options.output_dtype", {"params.options.output_dtype": "int8"}),
        Row(
            path,
            "an unknown options.output_dtype",
            {"params.options.output_dtype": "int4"},
            *refused,
            "params.options.output_dtype",
        ),
        Row(path, "options.is_query", {"params.options.is_query": True}),
        Row(path, "options.is_query null", {"params.options.is_query": None}),
        Row(path, "options.is_query a string", {"params.options.is_query": "yes"}, *refused, "params.options.is_query"),
        Row(path, "options.lora", {"params.options.lora": "legal"}),
        Row(path, "options.lora unknown", {"params.options.lora": "none"}, 400, None, "params.options.lora"),
        Row(path, "an image in base64", {"items.0.images": [{"data": base64_text(b"\x89PNG"), "format": "png"}]}),
        Row(path, "an image as byte values", {"items.0.images": [{"data": [137, 80, 78, 71], "format": None}]}),
        Row(path, "an image of no bytes", {"items.0.images": [{"data": ""}]}, *bad, "items[0].images[0].data"),
        Row(path, "a document in base64", {"items.0.document": {"data": base64_text(b"%PDF"), "format": "pdf"}}),
        Row(
            "/v1/encode/org/embed",
            "an image that the model does not take",
            body={"items": [{"images": [{"data": "AA=="}]}]},
            status=400,
            code="INVALID_INPUT",
            param="items[0].images",
        ),
        Row(
            "/v1/encode/org/embed",
            "a document that the model does not take",
            body={"items": [{"document": {"data": "AA=="}}]},
            status=400,
            code="INVALID_INPUT",
            param="items[0].document",
        ),
    ]
    return rows


def score() -> list[Row]:
    path, bad, refused = "/v1/score/org/rerank", (400, "INVALID_REQUEST"), (400, "INVALID_INPUT")
    return items(path, 1000) + [
        Row(path, "query absent", {"query": DELETE}, *bad, "query"),
        Row(path, "query a string", {"query": "q"}, *bad, "query"),
        Row(path, "query null", {"query": None}, *bad, "query"),
        Row(path, "query.id", {"query.id": "q-1"}),
        Row(path, "instruction", {"instruction": "be good"}),
        Row(path, "instruction null", {"instruction": None}),
        Row(path, "instruction a number", {"instruction": 1}, *bad, "instruction"),
        Row(path, "options null", {"options": None}),
        Row(path, "options an array", {"options": []}, *bad, "options"),
        Row(path, "options.profile", {"options": {"profile": "small"}}),
        Row(path, "options.profile blank", {"options": {"profile": ""}}, *refused, "options.profile"),
        Row(path, "options.profile unknown", {"options": {"profile": "none"}}, *refused),
        Row(path, "options.instruction", {"options": {"instruction": "be good"}}),
        Row(path, "options.max_seq_length", {"options": {"max_seq_length": 64}}),
        Row(path, "options.max_seq_length 64.0", {"options": {"max_seq_length": 64.0}}),
        Row(path, "options.max_seq_length 0", {"options": {"max_seq_length": 0}}, *refused, "options.max_seq_length"),
        Row(
            path,
            "options.max_seq_length a boolean",
            {"options": {"max_seq_length": True}},
            *refused,
            "options.max_seq_length",
        ),
        Row(
            path,
            "options.max_seq_length over 32 bits",
            {"options": {"max_seq_length": LONG}},
            *refused,
            "options.max_seq_length",
        ),
    ]


def extract() -> list[Row]:
    path, bad = "/v1/extract/org/extract", (400, "INVALID_REQUEST")
    return (
        items(path, 4096)
        + params(path)
        + [
            Row(path, "labels", {"params.labels": ["person", "city"]}),
            Row(path, "labels null", {"params.labels": None}),
            Row(path, "labels empty", {"params.labels": []}),
            Row(path, "1000 labels", {"params.labels": [f"l{i}" for i in range(1000)]}),
            Row(path, "1001 labels", {"params.labels": [f"l{i}" for i in range(1001)]}, *bad, "params.labels"),
            Row(path, "a label that is a number", {"params.labels": ["a", 1]}, *bad, "params.labels[1]"),
            Row(path, "a blank label", {"params.labels": ["a", " "]}, *bad, "params.labels[1]"),
            Row(path, "labels a string", {"params.labels": "person"}, *bad, "params.labels"),
            Row(path, "output_schema", {"params.output_schema": {"type": "object"}}),
            Row(path, "output_schema null", {"params.output_schema": None}),
            Row(path, "output_schema an array", {"params.output_schema": []}, *bad, "params.output_schema"),
            Row(
                "/v1/extract/org/all",
                "a document in base64",
                body={"items": [{"document": {"data": base64_text(b"%PDF")}}]},
            ),
        ]
    )


ROWS: Final = [*embeddings(), *rerank("/v1/rerank"), *rerank("/v2/rerank"), *encode(), *score(), *extract()]

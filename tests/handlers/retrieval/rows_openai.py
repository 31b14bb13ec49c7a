"""Rows of embeddings and both rerank operations."""

from __future__ import annotations

from typing import Any, Final

from tests.handlers.scripted import ABSENT, DELETE

from .table import LONG, Row, failures, routing

EMBEDDED: Final = {"data.0.embedding": [3.0, 0.3, -3.0, 0.1], "data.1.index": 1}
"""What the scripted engine makes of the least request."""
FAILED: Final[dict[str, tuple[int, str]]] = {
    "INVALID_INPUT": (400, "invalid_request"),
    "PAYLOAD_TOO_LARGE": (413, "payload_too_large"),
    "inference_error": (500, "transport_failure"),
    "MODEL_LOAD_FAILED": (502, "transport_failure"),
    "MODEL_LOADING": (503, "transport_failure"),
    "RESOURCE_EXHAUSTED": (503, "transport_failure"),
    "transport_failure": (503, "transport_failure"),
    "no worker": (503, "provisioning"),
    "too much waits": (503, "transport_failure"),
    "no queue": (503, "transport_failure"),
    "overall_timeout": (504, "overall_timeout"),
}
"""Status and code in the OpenAI envelope (contract A.6)."""


def embeddings() -> list[Row]:
    path, bad, lost = "/v1/embeddings", (400, "invalid_request"), (404, "model_not_found")
    rows = [
        Row(path, "an array of strings", reaches={"items.0.text": "one", "items.1.text": "three"}, answers=EMBEDDED),
        Row(path, "one string", {"input": "one"}, reaches={"items.0.text": "one", "items.1": ABSENT}),
        Row(path, "an empty string", {"input": ""}, reaches={"items.0.text": ""}),
        Row(path, "an array of one empty string", {"input": [""]}, reaches={"items.0.text": ""}),
        Row(path, "one empty string among others", {"input": ["a", "", "b"]}, reaches={"items.1.text": ""}),
        Row(path, "256 inputs", {"input": ["a"] * 256}, answers={"data.255.index": 255}),
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
        Row(path, "model in another case", {"model": "ORG/Embed"}, reaches={"model": "org/embed"}),
        Row(path, "model as sent", {"model": "ORG/Embed"}, answers={"model": "ORG/Embed"}),
        Row(path, "model with underscores", {"model": "org__embed"}, reaches={"model": "org/embed"}),
        Row(path, "model with a profile", {"model": "org/embed:small"}, reaches={"profile": "small"}),
        Row(path, "model with an unknown profile", {"model": "org/embed:none"}, *bad),
        Row(path, "model with a bundle", {"model": "other:/org/embed"}, reaches={"bundle": "other"}),
        Row(path, "model with an unknown bundle", {"model": "none:/org/embed"}, 404, "invalid_request"),
        Row(path, "model with a bundle that conflicts", {"model": "poor:/org/embed"}, 409, "invalid_request"),
        Row(path, "model that does not embed", {"model": "org/chat"}, *bad, "model"),
        Row(path, "model without dense vectors", {"model": "org/sparse"}, *bad, "model"),
        Row(path, "format float", {"encoding_format": "float"}, answers=EMBEDDED),
        Row(
            path,
            "format base64",
            {"encoding_format": "base64"},
            answers={"data.0.embedding": "AABAQJqZmT4AAEDAzczMPQ=="},
        ),
        Row(path, "format null", {"encoding_format": None}, answers=EMBEDDED),
        Row(path, "format unknown", {"encoding_format": "hex"}, *bad, "encoding_format"),
        Row(path, "format a number", {"encoding_format": 1}, *bad, "encoding_format"),
        Row(path, "dimensions ignored", {"dimensions": 7}, inert=True),
        Row(path, "dimensions 0", {"dimensions": 0}, inert=True),
        Row(path, "dimensions null", {"dimensions": None}, inert=True),
        Row(path, "dimensions 256.0", {"dimensions": 256.0}, inert=True),
        Row(path, "dimensions negative", {"dimensions": -1}, *bad, "dimensions"),
        Row(path, "dimensions over 32 bits", {"dimensions": LONG}, *bad, "dimensions"),
        Row(path, "dimensions text", {"dimensions": "1"}, *bad, "dimensions"),
        Row(path, "user ignored", {"user": "me"}, inert=True),
        Row(path, "user null", {"user": None}, inert=True),
        Row(path, "user a number", {"user": 1}, *bad, "user"),
        Row(path, "an unknown field, which this surface alone takes", {"truncate": "END"}, inert=True),
        Row(path, "a body that is an array", body=[], status=400, code="invalid_request"),
        Row(path, "usage", answers={"usage.prompt_tokens": 7, "usage.total_tokens": 7}),
    ]
    return rows + routing(path, "invalid_request", "invalid_request", "transport_failure") + failures(path, FAILED)


def rerank(path: str) -> list[Row]:
    def refused(name: str, change: dict[str, Any], param: str | None = None, status: int = 400) -> Row:
        return Row(path, name, change, status, param=param)

    length, profile = "options.max_seq_length", "options.profile"
    whole = {"results.0.index": 1, "results.1.index": 0, "results.0.document": ABSENT, "usage.input_tokens": 7}
    rows = [
        Row(path, "the least", reaches={"query.text": "q", "items.1.text": "three"}, answers=whole),
        refused("model absent", {"model": DELETE}, "model"),
        refused("model blank", {"model": "  "}, "model"),
        refused("model empty", {"model": ""}, "model"),
        refused("model null", {"model": None}, "model"),
        refused("model a number", {"model": 1}, "model"),
        refused("model unknown", {"model": "org/none"}, None, 404),
        refused("model that does not score", {"model": "org/chat"}, "model"),
        Row(path, "model", {"model": "ORG/rerank"}, answers={"model": "org/rerank"}),
        Row(path, "model with a bundle", {"model": "other:/org/rerank"}, reaches={"bundle": "other"}),
        refused("model with a bundle that conflicts", {"model": "poor:/org/rerank"}, None, 409),
        refused("model with an unknown bundle", {"model": "none:/org/rerank"}, None, 404),
        Row(path, "model with a profile", {"model": "org/rerank:small"}, reaches={"profile": "small"}),
        refused("model with an unknown profile", {"model": "org/rerank:none"}, "profile"),
        Row(path, "query", {"query": "r"}, reaches={"query.text": "r"}),
        refused("query absent", {"query": DELETE}, "query"),
        refused("query blank", {"query": " \n\t"}, "query"),
        refused("query an object", {"query": {"text": "q"}}, "query"),
        refused("query null", {"query": None}, "query"),
        Row(path, "documents", {"documents": ["a"]}, reaches={"items.0.text": "a", "items.1": ABSENT}),
        refused("documents absent", {"documents": DELETE}, "documents"),
        refused("documents empty", {"documents": []}, "documents"),
        refused("documents null", {"documents": None}, "documents"),
        refused("documents one string", {"documents": "one"}, "documents"),
        Row(path, "1000 documents", {"documents": ["d"] * 1000}, answers={"results.999.index": 999}),
        refused("1001 documents", {"documents": ["d"] * 1001}, "documents"),
        refused("a blank document", {"documents": ["a", " "]}, "documents[1]"),
        refused("an empty document", {"documents": ["a", ""]}, "documents[1]"),
        refused("a document that is an object", {"documents": [{"text": "a"}]}, "documents[0]"),
        Row(path, "top_n", {"top_n": 1}, answers={"results.0.index": 1, "results.1": ABSENT}),
        Row(path, "top_n over the number of documents", {"top_n": 99}, answers=whole),
        Row(path, "top_n 1.0", {"top_n": 1.0}, answers={"results.1": ABSENT}),
        Row(path, "top_n null", {"top_n": None}, answers=whole),
        refused("top_n 0", {"top_n": 0}, "top_n"),
        refused("top_n negative", {"top_n": -1}, "top_n"),
        refused("top_n 1.5", {"top_n": 1.5}, "top_n"),
        refused("top_n text", {"top_n": "1"}, "top_n"),
        refused("top_n a boolean", {"top_n": True}, "top_n"),
        Row(path, "options null", {"options": None}, inert=True),
        Row(path, "options empty", {"options": {}}, inert=True),
        refused("options a string", {"options": "x"}, "options"),
        refused("options with an unknown key", {"options": {"batch": 1}}, "options.batch"),
        Row(path, "options.profile", {"options": {"profile": "small"}}, reaches={"profile": "small"}),
        Row(path, "options.profile null", {"options": {"profile": None}}, inert=True),
        refused("options.profile blank", {"options": {"profile": " "}}, profile),
        refused("options.profile a number", {"options": {"profile": 1}}, profile),
        refused("options.profile unknown", {"options": {"profile": "none"}}, profile),
        Row(path, length, {"options": {"max_seq_length": 64}}, reaches={"max_sequence_length": 64}),
        Row(path, f"{length} null", {"options": {"max_seq_length": None}}, inert=True),
        refused(f"{length} 0", {"options": {"max_seq_length": 0}}, length),
        refused(f"{length} text", {"options": {"max_seq_length": "64"}}, length),
        refused("an unknown field", {"rank_fields": ["a"]}, "rank_fields"),
        Row(path, "a body that is an array", body=[], status=400),
    ]
    returned, key = "return_documents", "max_tokens_per_doc"
    if path == "/v1/rerank":
        rows += [
            Row(path, returned, {returned: True}, answers={"results.0.document.text": "three"}),
            Row(path, f"{returned} false", {returned: False}, answers=whole),
            Row(path, f"{returned} null", {returned: None}, answers=whole),
            refused(f"{returned} a string", {returned: "yes"}, returned),
            refused("max_chunks_per_doc", {"max_chunks_per_doc": 1}, "max_chunks_per_doc"),
        ]
    else:
        rows += [
            refused(returned, {returned: True}, returned),
            Row(path, f"{key} null", {key: None}, inert=True),
            refused(key, {key: 9}, key),
            Row(path, "priority null", {"priority": None}, inert=True),
            refused("priority", {"priority": 1}, "priority"),
            refused("relevant_spans", {"relevant_spans": True}, "relevant_spans"),
        ]
    told = {said: (status, "") for said, (status, _) in FAILED.items()}
    return rows + routing(path, None, None, None) + failures(path, told)

"""Extraction on the real server: spaCy's entities, and structured data by the generation model."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import msgspec
import pytest

from tests.engines.extraction.helpers import HARD, docx, exact, pages, pdf, zip_bomb
from tests.live import CHAT_MODEL, KEY

SPACY = "spacy/en_core_web_sm"
SENTENCE = "Barack Obama was born in Hawaii."
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 60},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mood": {"enum": ["happy", "sad"]},
    },
    "required": ["name", "age", "mood"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def http(base_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base_url, headers={"authorization": f"Bearer {KEY}"}, timeout=280) as client:
        yield client


def extracted(http: httpx.Client, model: str, items: list[dict[str, Any]], **params: Any) -> Any:
    response = http.post(f"/v1/extract/{model}", json={"items": items, **({"params": params} if params else {})})
    assert response.status_code == 200, response.text
    body = response.json()
    assert body["model"] == model
    assert len(body["items"]) == len(items)
    return body["items"]


def test_entities_stand_where_the_offsets_say(http: httpx.Client) -> None:
    texts = [f"{piece}{SENTENCE}{piece} Then he moved to Chicago in 1985." for piece in HARD]
    results = extracted(http, SPACY, [{"id": f"t{i}", "text": text} for i, text in enumerate(texts)])
    assert [result["id"] for result in results] == [f"t{i}" for i in range(len(texts))]
    for text, result in zip(texts, results, strict=True):
        assert exact(text, result)
        assert any("Obama" in e["text"] for e in result["entities"])
        assert result["relations"] == result["classifications"] == []


def test_labels_filter(http: httpx.Client) -> None:
    (result,) = extracted(http, SPACY, [{"text": SENTENCE}], labels=["GPE"])
    assert [(e["text"], e["label"]) for e in result["entities"]] == [("Hawaii", "GPE")]


def test_a_faulty_item_has_an_error_beside_the_others(http: httpx.Client) -> None:
    good, bad = extracted(http, SPACY, [{"text": SENTENCE}, {"id": "empty"}])
    assert good["entities"]
    assert "error" not in good
    assert (bad["id"], bad["error"]["code"]) == ("empty", "INVALID_INPUT")


def test_messagepack_says_the_same(http: httpx.Client) -> None:
    media = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    body = msgspec.msgpack.encode({"items": [{"text": SENTENCE}]})
    response = http.post(f"/v1/extract/{SPACY}", content=body, headers=media)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/msgpack"
    assert msgspec.msgpack.decode(response.content)["items"] == extracted(http, SPACY, [{"text": SENTENCE}])


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"labels": ["colour"]}, "params.labels"),
        ({"output_schema": PERSON}, "params.output_schema"),
        ({"options": {"threshold": 0.5}}, "params.options.threshold"),
    ],
)
def test_what_the_model_has_nothing_for_is_refused_by_name(
    http: httpx.Client, params: dict[str, Any], param: str
) -> None:
    response = http.post(f"/v1/extract/{SPACY}", json={"items": [{"text": SENTENCE}], "params": params})
    assert response.status_code == 400
    assert response.json()["detail"]["code"] == "INVALID_INPUT"
    assert param in response.json()["detail"]["message"]


@pytest.mark.parametrize("packed", [False, True])
def test_documents_are_read_and_hostile_ones_are_errors_of_their_items(http: httpx.Client, packed: bool) -> None:
    page = f"<html><body><script>alert(1)</script><p>{SENTENCE}</p></body></html>".encode()
    documents = [
        (pdf(SENTENCE), "pdf"),
        (docx(), None),
        (page, "text/html"),
        (SENTENCE.encode(), "txt"),
        (zip_bomb(), "docx"),
        (pages(1, "secret", "RC4-128"), "pdf"),
        (b"\x89PNG\r\n\x1a\n\xff", "png"),
        (page, "pdf"),
    ]
    items = [{"document": {"data": data, "format": form}} for data, form in documents]
    if packed:
        headers = {"content-type": "application/msgpack", "accept": "application/msgpack"}
        body = msgspec.msgpack.encode({"items": items})
        response = http.post(f"/v1/extract/{SPACY}", content=body, headers=headers)
        assert response.status_code == 200
        results = msgspec.msgpack.decode(response.content)["items"]
    else:
        # bytes are base64 in JSON
        results = extracted(http, SPACY, msgspec.json.decode(msgspec.json.encode(items)))
    for result in results[:4]:
        text = result["data"]["text"]
        assert SENTENCE in text
        assert "alert" not in text
        assert exact(text, result)
        assert {("Barack Obama", "PERSON"), ("Hawaii", "GPE")} <= {(e["text"], e["label"]) for e in result["entities"]}
    assert [result["error"]["code"] for result in results[4:]] == ["INVALID_INPUT"] * 4
    assert all(result["entities"] == [] for result in results[4:])


def test_a_document_is_refused_where_the_model_takes_none(http: httpx.Client) -> None:
    document = {"data": base64.b64encode(SENTENCE.encode()).decode(), "format": "txt"}
    response = http.post(f"/v1/extract/{CHAT_MODEL}", json={"items": [{"document": document}]})
    assert response.status_code == 400
    assert "takes no documents" in response.text


def test_structured_data_is_valid_by_its_schema(http: httpx.Client) -> None:
    texts = ["Anna Schmidt is 42 years old and laughs all day.", "Peter, who is 7, is crying.", "Is there anybody?"]
    results = extracted(http, CHAT_MODEL, [{"text": text} for text in texts], output_schema=PERSON)
    for result in results:
        jsonschema.validate(result["data"], PERSON)
        assert result["entities"] == []
    # how well it reads is the model's matter; that it reads the text at all shows in the name
    assert results[0]["data"]["name"] == "Anna Schmidt"


def test_an_answer_that_is_cut_off_is_an_error_of_its_item(http: httpx.Client) -> None:
    (result,) = extracted(
        http, CHAT_MODEL, [{"text": "Anna is 42."}], output_schema=PERSON, options={"max_new_tokens": 3}
    )
    assert "data" not in result
    assert "max_new_tokens" in result["error"]["message"]


@pytest.mark.parametrize("schema", [None, {"type": "colour"}, {"$ref": "http://127.0.0.1:9/x"}, {"pattern": "(?<=a)b"}])
def test_a_schema_that_cannot_be_enforced_is_refused(http: httpx.Client, schema: Any) -> None:
    params = {} if schema is None else {"output_schema": schema}
    response = http.post(f"/v1/extract/{CHAT_MODEL}", json={"items": [{"text": "a"}], "params": params})
    assert response.status_code == 400, response.text
    assert "output_schema" in response.text

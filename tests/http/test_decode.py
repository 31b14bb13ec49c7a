"""Bodies: every form of message that msgspec has for a refused body, and what the envelope says of it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest

from codegen.patterns import python_pattern
from handlers.errors import Failure, InvalidField
from handlers.http.decode import BodyDecoder
from handlers.http.explain import integral

JSON, MSGPACK = "application/json", "application/msgpack"


class Part(msgspec.Struct, tag="text", tag_field="type", forbid_unknown_fields=True):
    text: str


class Picture(msgspec.Struct, tag="image", tag_field="type"):
    url: str


class Inner(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    role: str
    parts: list[Part | Picture] = []


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    model: Annotated[str, msgspec.Meta(min_length=1, max_length=8, pattern="^[a-z]+$")]
    messages: list[Inner] = []
    count: Annotated[int, msgspec.Meta(ge=1, le=100)] | msgspec.UnsetType | None = msgspec.UNSET
    share: Annotated[float, msgspec.Meta(gt=0, lt=2)] = 1.0
    mode: Literal["a", "b"] = "a"
    bias: dict[str, int] = {}
    keyed: dict[int, int] = {}
    pair: Annotated[list[int], msgspec.Meta(max_length=2)] = []
    either: str | list[str] = ""
    flag: bool = False
    raw: bytes = b""
    any: Any = None


def refuse(body: object, content_type: str = JSON) -> Failure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    decoder = BodyDecoder(Body, (JSON,))
    with pytest.raises(Failure) as caught:
        decoder.decode(decoder.choose(content_type.encode()), raw)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"model": "m", "extra": 1}, "unsupported_field", "extra"),
        ({"model": "m", "extra": None}, "unsupported_field", "extra"),
        ({"model": "m", "messages": [{"role": "x", "name": 1}]}, "unsupported_field", "messages[0].name"),
        ({"model": "m", "messages": [{"role": "x", "parts": [{"type": "text", "text": "", "n": 1}]}]},
         "unsupported_field", "messages[0].parts[0].n"),
        ({"messages": []}, "invalid_request", "model"),
        ({"model": "m", "messages": [{"role": "x"}, {}]}, "invalid_request", "messages[1].role"),
        ({"model": 5}, "invalid_request", "model"),
        ({"model": None}, "invalid_request", "model"),
        ({"model": ""}, "invalid_request", "model"),
        ({"model": "toolongname"}, "invalid_request", "model"),
        ({"model": "M"}, "invalid_request", "model"),
        ({"model": "m", "messages": {}}, "invalid_request", "messages"),
        ({"model": "m", "messages": ["x"]}, "invalid_request", "messages[0]"),
        ({"model": "m", "messages": [{"role": 1}]}, "invalid_request", "messages[0].role"),
        ({"model": "m", "messages": [{"role": "x", "parts": [{"type": "video"}]}]},
         "invalid_request", "messages[0].parts[0].type"),
        ({"model": "m", "messages": [{"role": "x", "parts": [{}]}]}, "invalid_request", "messages[0].parts[0].type"),
        ({"model": "m", "count": 0}, "invalid_request", "count"),
        ({"model": "m", "count": 101}, "invalid_request", "count"),
        ({"model": "m", "count": 10**30}, "invalid_request", "count"),
        ({"model": "m", "count": "1"}, "invalid_request", "count"),
        ({"model": "m", "count": True}, "invalid_request", "count"),
        ({"model": "m", "count": 1.5}, "invalid_request", "count"),
        ({"model": "m", "count": 300.0}, "invalid_request", "count"),
        ({"model": "m", "share": 2}, "invalid_request", "share"),
        ({"model": "m", "share": 0.0}, "invalid_request", "share"),
        ({"model": "m", "mode": "c"}, "invalid_request", "mode"),
        ({"model": "m", "mode": 1}, "invalid_request", "mode"),
        ({"model": "m", "bias": {"k": "x"}}, "invalid_request", "bias"),
        ({"model": "m", "keyed": {"k": 1}}, "invalid_request", "keyed"),
        ({"model": "m", "pair": [1, 2, 3]}, "invalid_request", "pair"),
        ({"model": "m", "pair": [1, "x"]}, "invalid_request", "pair[1]"),
        ({"model": "m", "either": 1}, "invalid_request", "either"),
        ({"model": "m", "either": [1]}, "invalid_request", "either[0]"),
        ({"model": "m", "flag": "true"}, "invalid_request", "flag"),
        ({"model": "m", "flag": 1}, "invalid_request", "flag"),
        ({"model": "m", "raw": "%"}, "invalid_request", "raw"),
    ],
)  # fmt: skip
def test_refused_field_is_named_by_its_path(body: object, code: str, param: str) -> None:
    failure = refuse(body)
    assert (failure.code, failure.param) == (code, param)
    assert failure.message
    assert " - at `" not in failure.message, "the path is in param, not in the text"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"model": ',
        b'{"model": "m"} x',
        b"[]",
        b'"x"',
        b"null",
        b"1",
        b"\xff",
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'{"model": "m", "share": NaN}',
        b'{"model": "m", "share": 1e999}',
        b'{"model": "m", "any": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    ],
    ids=range(15),
)
def test_body_that_is_no_object_or_no_json_is_invalid_without_a_field(body: bytes) -> None:
    failure = refuse(body)
    assert failure.code == "invalid_request"
    assert failure.param is None or b"share" in body
    assert failure.message


def test_whole_floats_are_integers_and_halves_are_not() -> None:
    decoder = BodyDecoder(Body, (JSON,))
    body = decoder.decode(JSON, b'{"model": "m", "count": 12.0, "pair": [1.0, 2], "share": 1.0, "any": 0.5}')
    assert (body.count, body.pair, body.share, body.any) == (12, [1, 2], 1.0, 0.5)
    assert type(body.count) is int


def test_an_integer_without_bounds_may_be_a_large_whole_float() -> None:
    decoder = BodyDecoder(list[int], (MSGPACK,))
    assert decoder.decode(MSGPACK, msgspec.msgpack.encode([2.0, 1e35])) == [2, int(1e35)]
    with pytest.raises(InvalidField):
        decoder.decode(MSGPACK, msgspec.msgpack.encode([2.0, 1e35, 0.5]))


def test_integral_keeps_what_is_no_whole_number() -> None:
    assert integral({"a": [1.0, 1.5, "x", {"b": -2.0}], "big": 1e300}) == {"a": [1, 1.5, "x", {"b": -2}], "big": 1e300}


def test_last_of_repeated_keys_counts() -> None:
    assert BodyDecoder(Body, (JSON,)).decode(JSON, b'{"model": "a", "model": "b"}').model == "b"


@pytest.mark.parametrize("media", ["application/msgpack", "application/x-msgpack", "application/vnd.msgpack"])
def test_messagepack_decodes_like_json(media: str) -> None:
    decoder = BodyDecoder(Body, (JSON, media))
    body = decoder.decode(decoder.choose(media.encode()), msgspec.msgpack.encode({"model": "m", "raw": b"\x00\x01"}))
    assert (body.model, body.raw) == ("m", b"\x00\x01")
    with_float = msgspec.msgpack.encode({"model": "m", "raw": b"\x00\x01", "count": 3.0})
    assert decoder.decode(media, with_float) == msgspec.structs.replace(body, count=3)
    with pytest.raises(Failure, match="Expected `str`") as caught:
        decoder.decode(media, msgspec.msgpack.encode({"model": 1}))
    assert caught.value.param == "model"
    with pytest.raises(Failure) as caught:
        decoder.decode(media, b"\xc1")
    assert caught.value.status == 400


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "multipart/form-data; boundary=x", "json"])
def test_content_type_that_is_not_declared_is_415(content_type: str) -> None:
    with pytest.raises(Failure) as caught:
        BodyDecoder(Body, (JSON,)).choose(content_type.encode())
    assert caught.value.status == 415
    assert JSON in caught.value.message


@pytest.mark.parametrize("content_type", [None, b"", b"application/json", b"Application/JSON; charset=utf-8"])
def test_json_needs_no_content_type(content_type: bytes | None) -> None:
    assert BodyDecoder(Body, (JSON, "application/msgpack")).choose(content_type) == JSON


SCHEMA = {
    "type": "object",
    "properties": {
        "stream": {"enum": [False, None]},
        "items": {"type": "array", "items": {"type": "object", "required": ["a"]}},
        "n": {"type": "integer"},
        "one": {
            "oneOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {"x": {"type": "integer"}},
                    "oneOf": [{"required": ["x"]}, {"required": ["y"]}],
                },
            ]
        },
    },
    "additionalProperties": False,
    "anyOf": [{"required": ["items"]}, {"required": ["n"]}],
}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"n": 1, "stream": True}, "unsupported_field", "stream"),
        ({"items": [{"a": 1}, {}]}, "invalid_request", "items[1].a"),
        ({"n": 1, "extra": 1}, "unsupported_field", "extra"),
        ({"n": 1.5}, "invalid_request", "n"),
        ({}, "invalid_request", "items"),
        ({"n": 1, "one": {}}, "invalid_request", "one"),
        ({"n": 1, "one": {"x": 1, "y": 1}}, "invalid_request", "one"),
        ({"n": 1, "one": {"x": "1"}}, "invalid_request", "one.x"),
        ({"n": 1, "one": 7}, "invalid_request", "one"),
    ],
)
def test_second_pass_names_the_field(body: Any, code: str, param: str | None) -> None:
    decoder = BodyDecoder(dict[str, Any], (JSON,), SCHEMA)
    with pytest.raises(Failure) as caught:
        decoder.decode(JSON, json.dumps(body).encode())
    assert (caught.value.code, caught.value.param) == (code, param)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "At least one of 'items' and 'n' is needed"),
        ({"n": 1, "one": {}}, "Exactly one of 'one.x' and 'one.y' is needed"),
        ({"n": 1, "one": {"x": 1, "y": 1}}, "Exactly one of 'one.x' and 'one.y' is needed"),
    ],
)
def test_alternatives_are_named(body: Any, message: str) -> None:
    decoder = BodyDecoder(dict[str, Any], (JSON,), SCHEMA)
    with pytest.raises(Failure) as caught:
        decoder.decode(JSON, json.dumps(body).encode())
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("pattern", "value", "message"),
    [
        (python_pattern(r".*\S.*"), " ", "The text must not be blank"),
        (python_pattern("^(?!_no$)[A-Za-z0-9_-]+$"), "a b",
         "The text may only have letters, digits, '_', '-'; some names are reserved"),
        (python_pattern("^[0-9]{1,10}$"), "x", "The text may only have digits"),
        (python_pattern("^(a|b)+$"), "x", "The text has a form that is not allowed"),
    ],
)  # fmt: skip
def test_patterns_are_put_in_words(pattern: str, value: str, message: str) -> None:
    decoder = BodyDecoder(dict[str, Annotated[str, msgspec.Meta(pattern=pattern)]], (JSON,))
    with pytest.raises(Failure) as caught:
        decoder.decode(JSON, json.dumps({"a": value}).encode())
    assert caught.value.message == message


@pytest.mark.parametrize("value", [1e300, 1.0, 1.5])
def test_a_float_is_called_one(value: float) -> None:
    decoder = BodyDecoder(dict[str, str], (MSGPACK,))
    with pytest.raises(Failure, match="got `float`"):
        decoder.decode(MSGPACK, msgspec.msgpack.encode({"a": value}))


def test_second_pass_lets_good_bodies_through() -> None:
    decoder = BodyDecoder(dict[str, Any], (JSON,), SCHEMA)
    assert decoder.decode(JSON, b'{"n": 1.0, "stream": null}') == {"n": 1.0, "stream": None}

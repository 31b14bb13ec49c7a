"""Multipart forms, whole and cut into every kind of piece."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from generated.sie.operations import Body
from handlers.http.form import MAX_FILE, MAX_TEXT
from tests.http.driver import Exchange
from tests.http.fakes import Reply, operation, server


class Form(msgspec.Struct, kw_only=True):
    file: bytes
    model: str
    temperature: Annotated[float, msgspec.Meta(ge=0, le=1)] | msgspec.UnsetType | None = msgspec.UNSET
    stream: bool | msgspec.UnsetType | None = msgspec.UNSET
    words: list[Literal["word", "segment"]] | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="words[]")


FILE = ("file", "a.wav", b"RIFF\x00\xff\r\n--x")


def encode(*parts: tuple[Any, ...], end: bytes = b"--boundary--\r\n") -> bytes:
    body = b""
    for name, *rest in parts:
        filename = f'; filename="{rest[0]}"' if len(rest) == 2 else ""
        value = rest[-1] if isinstance(rest[-1], bytes) else rest[-1].encode()
        body += f'--boundary\r\nContent-Disposition: form-data; name="{name}"{filename}\r\n\r\n'.encode()
        body += value + b"\r\n"
    return body + end


async def post(body: bytes, cut: int = 0, content_type: str = "multipart/form-data; boundary=boundary") -> Exchange:
    seen: dict[str, Any] = {}

    async def handler(context: Any, form: Form) -> Reply:
        seen["form"], seen["filenames"] = form, context.filenames
        return Reply("")

    made = operation(body=Body(type=Form, media=("multipart/form-data",), multipart=True, max_bytes=26_214_400))
    pieces = [body[i : i + cut] for i in range(0, len(body), cut)] if cut else [body]
    done = await Exchange(pieces, {"content-type": content_type}).run(server(made), made, handler)
    done.scope["seen"] = seen
    return done


@pytest.mark.parametrize("cut", [0, 1, 2, 7, 64])
async def test_form_is_the_same_however_it_is_cut(cut: int) -> None:
    body = encode(FILE, ("model", "m"), ("temperature", "0.5"), ("stream", "false"), ("words[]", "word"))
    done = await post(body, cut)
    assert done.status == 200, done.body
    assert done.scope["seen"]["form"] == Form(file=FILE[2], model="m", temperature=0.5, stream=False, words=["word"])
    assert done.scope["seen"]["filenames"] == {"file": "a.wav"}


async def test_list_may_repeat_with_or_without_brackets() -> None:
    done = await post(encode(FILE, ("model", "m"), ("words[]", "word"), ("words", "segment")))
    assert done.scope["seen"]["form"].words == ["word", "segment"]


@pytest.mark.parametrize(
    ("parts", "code", "param"),
    [
        ((FILE,), "invalid_request", "model"),
        ((("model", "m"),), "invalid_request", "file"),
        ((FILE, ("model", "m"), ("model", "n")), "invalid_request", "model"),
        ((FILE, FILE, ("model", "m")), "invalid_request", "file"),
        ((FILE, ("model", "m"), ("extra", "1")), "unsupported_field", "extra"),
        ((FILE, ("model", "m"), ("temperature", "2")), "invalid_request", "temperature"),
        ((FILE, ("model", "m"), ("temperature", "warm")), "invalid_request", "temperature"),
        ((FILE, ("model", "m"), ("stream", "0")), "invalid_request", "stream"),
        ((FILE, ("model", "m"), ("stream", "True")), "invalid_request", "stream"),
        ((FILE, ("model", "m"), ("words[]", "line")), "invalid_request", "words[][0]"),
        ((("file", "no filename"), ("model", "m")), "invalid_request", "file"),
        ((FILE, ("model", b"\xff")), "invalid_request", None),
    ],
)
async def test_refused_form_names_the_field(parts: tuple[Any, ...], code: str, param: str | None) -> None:
    done = await post(encode(*parts))
    assert done.status == 400
    assert (done.json["error"]["code"], done.json["error"]["param"]) == (code, param)


@pytest.mark.parametrize("body", [b"", b"x", encode(FILE, end=b""), b"--boundary\r\nnonsense\r\n\r\n--boundary--\r\n"])
async def test_malformed_form_is_400(body: bytes) -> None:
    done = await post(body)
    assert done.status == 400
    assert done.json["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("content_type", ["application/json", "multipart/mixed; boundary=boundary", ""])
async def test_other_content_type_is_415(content_type: str) -> None:
    assert (await post(b"{}", content_type=content_type)).status == 415


async def test_missing_boundary_is_400() -> None:
    assert (await post(b"x", content_type="multipart/form-data")).status == 400


async def test_sizes_are_bounded_while_they_come_in() -> None:
    long = encode(FILE, ("model", "m" * (MAX_TEXT + 1)))
    done = await post(long, 4096)
    assert (done.status, done.json["error"]["param"]) == (413, "model")
    large = encode(("file", "a.wav", b"x" * (MAX_FILE + 500_000)), ("model", "m"))
    done = await post(large, 1 << 16)
    assert (done.status, done.json["error"]["param"]) == (413, "file")
    assert done.received < len(large) / (1 << 16)
    whole = encode(FILE, ("model", "m")) + b" " * 27_000_000
    assert (await post(whole)).status == 413


async def test_too_many_parts_are_refused() -> None:
    done = await post(encode(FILE, ("model", "m"), *[("words[]", "word")] * 20))
    assert done.status == 413

"""POST /v1/audio/transcriptions."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.protocol.events import ScoreOutput, Segment, TranscribeOutput
from generated.sie import operations
from handlers.retrieval import subtitles
from tests.handlers.document import body_schema, properties
from tests.handlers.scripted import failed

from . import fakes
from .conftest import Client
from .table import Row, routing

PATH = "/v1/audio/transcriptions"
MIB = 1024 * 1024

Fields = list[tuple[str, Any]]


async def post(
    client: Client, fields: Fields | None = None, *, model: str | None = "org/speech", file: Any = ""
) -> httpx.Response:
    """Send a form. ``file``: (filename, bytes), or ``None`` for a form without it."""
    parts: list[tuple[str, Any]] = [] if model is None else [("model", (None, model))]
    if file is not None:
        parts.append(("file", file or ("speech.wav", b"RIFF")))
    parts += [(name, value if isinstance(value, tuple) else (None, value)) for name, value in fields or []]
    return await client.post(PATH, files=parts)


def error(response: httpx.Response) -> tuple[int, str, str | None]:
    body = response.json()["error"]
    return response.status_code, body["code"], body["param"]


ACCEPTED: dict[str, Fields] = {
    "the least": [],
    "language": [("language", "en")],
    "prompt": [("prompt", "Names: Ada")],
    "an empty prompt": [("prompt", "")],
    "temperature 0": [("temperature", "0")],
    "temperature 1": [("temperature", "1.0")],
    "stream false": [("stream", "false")],
    "format json": [("response_format", "json")],
    "format text": [("response_format", "text")],
    "format srt": [("response_format", "srt")],
    "format verbose_json": [("response_format", "verbose_json")],
    "format vtt": [("response_format", "vtt")],
    "granularities": [
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities[]", "segment"),
    ],
    "a granularity without brackets": [("response_format", "verbose_json"), ("timestamp_granularities", "word")],
    "a granularity twice": [
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities[]", "word"),
    ],
}
BAD, UNSUPPORTED = "invalid_request", "unsupported_field"
REFUSED: dict[str, tuple[Fields, int, str, str | None]] = {
    "language blank": ([("language", " ")], 400, BAD, "language"),
    "language twice": ([("language", "en"), ("language", "fr")], 400, BAD, "language"),
    "model twice": ([("model", "org/speech")], 400, BAD, "model"),
    "a second file": ([("file", ("b.wav", b"RIFF"))], 400, BAD, "file"),
    "format diarized_json": ([("response_format", "diarized_json")], 400, UNSUPPORTED, "response_format"),
    "format unknown": ([("response_format", "xml")], 400, BAD, "response_format"),
    "temperature below 0": ([("temperature", "-0.1")], 400, BAD, "temperature"),
    "temperature above 1": ([("temperature", "1.1")], 400, BAD, "temperature"),
    "temperature text": ([("temperature", "warm")], 400, BAD, "temperature"),
    "temperature nan": ([("temperature", "nan")], 400, BAD, "temperature"),
    "stream true": ([("stream", "true")], 400, UNSUPPORTED, "stream"),
    "stream 1": ([("stream", "1")], 400, BAD, "stream"),
    "granularity unknown": (
        [("response_format", "verbose_json"), ("timestamp_granularities[]", "letter")],
        400,
        BAD,
        "timestamp_granularities[]",
    ),
    "granularity without verbose_json": (
        [("timestamp_granularities[]", "word")],
        400,
        BAD,
        "timestamp_granularities[]",
    ),
    "granularity with srt": (
        [("response_format", "srt"), ("timestamp_granularities[]", "segment")],
        400,
        BAD,
        "timestamp_granularities[]",
    ),
    "an unknown field": ([("include[]", "logprobs")], 400, UNSUPPORTED, "include[]"),
    "a long prompt": ([("prompt", "x" * (8 * 1024 + 1))], 413, "payload_too_large", "prompt"),
}
ROUTES = routing(PATH, BAD, None, None)


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: row.id)
async def test_headers_say_where_the_work_goes(client: Client, row: Row) -> None:
    parts = [("model", (None, "org/speech")), ("file", ("speech.wav", b"RIFF"))]
    response = await client.post(PATH, files=parts, headers=dict(row.headers))
    assert response.status_code == row.status, response.text
    if row.status != 200:
        assert client.dispatcher.works == []
        assert row.code is None or error(response)[1] == row.code
        assert row.param is None or error(response)[2] == row.param
        return
    (work,), (route,) = client.dispatcher.works, client.dispatcher.routes
    assert {name: getattr(work, name) for name in row.reaches} == dict(row.reaches)
    assert {name: getattr(route, name) for name in row.goes} == dict(row.goes)


def test_every_header_of_the_document_has_a_row() -> None:
    sent = {name for row in ROUTES for name in row.headers}
    declared = operations.PROXY_OPENAI_TRANSCRIPTION.parameters
    assert {parameter.name for parameter in declared if parameter.location == "header"} <= sent


@pytest.mark.parametrize("fields", ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_an_accepted_form(client: Client, fields: Fields) -> None:
    response = await post(client, fields)
    assert response.status_code == 200, response.text
    assert len(client.dispatcher.works) == 1


@pytest.mark.parametrize(("fields", "status", "code", "param"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_refused_form(client: Client, fields: Fields, status: int, code: str, param: str | None) -> None:
    told = error(await post(client, fields))
    assert told[:2] == (status, code)
    assert told[2] is not None and param is not None and told[2].startswith(param)
    assert client.dispatcher.works == []


@pytest.mark.parametrize("extension", ["flac", "mp3", "mp4", "mpeg", "mpga", "m4a", "ogg", "wav", "webm", "WAV"])
async def test_an_accepted_extension(client: Client, extension: str) -> None:
    response = await post(client, file=(f"two words.{extension}", b"sound"))
    assert response.status_code == 200
    assert client.dispatcher.works[0].filename == f"two words.{extension}"


@pytest.mark.parametrize("name", ["speech.txt", "speech", "wav", "speech.wav.exe", ".", "wav.", "speech.wav/"])
async def test_a_refused_extension(client: Client, name: str) -> None:
    assert error(await post(client, file=(name, b"sound"))) == (400, BAD, "file")


@pytest.mark.parametrize(
    ("model", "file", "param"),
    [
        ("org/speech", None, "file"),
        ("org/speech", ("a.wav", b""), "file"),
        ("org/speech", (None, b"RIFF"), "file"),
        (None, "", "model"),
        ("", "", "model"),
        ("org/chat", "", "model"),
    ],
    ids=["no file", "an empty file", "a file without a name", "no model", "an empty model", "a model that cannot hear"],
)
async def test_a_required_field(client: Client, model: str | None, file: Any, param: str) -> None:
    assert error(await post(client, model=model, file=file)) == (400, BAD, param)


def test_every_property_of_the_document_has_a_form() -> None:
    """One that is accepted and one that is refused by its name; ``file`` and ``model`` are in every form."""
    known = {name for name, _ in properties(body_schema(operations.PROXY_OPENAI_TRANSCRIPTION))}
    accepted = {name for fields in ACCEPTED.values() for name, _ in fields} | {"file", "model"}
    refused = {param for _, _, _, param in REFUSED.values()}
    assert known
    assert sorted(known - accepted) == []
    assert sorted(known - refused) == []


FAILURES: dict[str, tuple[int, str]] = {
    "INVALID_INPUT": (400, "invalid_request"),
    "PAYLOAD_TOO_LARGE": (413, "payload_too_large"),
    "inference_error": (500, "transport_failure"),
    "MODEL_LOAD_FAILED": (502, "transport_failure"),
    "MODEL_LOADING": (503, "transport_failure"),
    "RESOURCE_EXHAUSTED": (503, "transport_failure"),
    "overall_timeout": (504, "overall_timeout"),
}


@pytest.mark.parametrize("said", FAILURES)
async def test_a_failure_of_the_work(client: Client, said: str) -> None:
    client.dispatcher.script = lambda work: failed(said)
    assert error(await post(client)) == (*FAILURES[said], None)


def test_every_declared_status_is_tested() -> None:
    seen = {200, 400, 404, 413} | {status for status, _ in FAILURES.values()}
    assert set(operations.PROXY_OPENAI_TRANSCRIPTION.responses) - seen == {
        401,
        415,
    }  # tests of the HTTP layer have them


async def test_an_unknown_model(client: Client) -> None:
    assert error(await post(client, model="org/none")) == (404, "model_not_found", "model")


async def test_a_file_of_the_greatest_size(client: Client) -> None:
    response = await post(client, file=("a.wav", b"\0" * (24 * MIB)))
    assert response.status_code == 200
    assert len(client.dispatcher.works[0].audio) == 24 * MIB


async def test_a_file_that_is_too_large(client: Client) -> None:
    assert error(await post(client, file=("a.wav", b"\0" * (24 * MIB + 1)))) == (413, "payload_too_large", "file")


async def test_a_form_that_is_too_large(client: Client) -> None:
    status, code, param = error(await post(client, file=("a.wav", b"\0" * (26 * MIB))))
    assert (status, code, param) == (413, "payload_too_large", None)


async def test_a_body_that_is_no_form(client: Client) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x"}
    assert error(await client.post(PATH, content=b"no form", headers=headers)) == (400, BAD, None)
    response = await client.post(PATH, json={"model": "org/speech"})
    assert response.status_code in (400, 415)
    assert response.json()["error"]["code"] == BAD


async def test_the_work_carries_the_form(client: Client) -> None:
    fields = [
        ("language", "en"),
        ("prompt", "Names: Ada"),
        ("temperature", "0.25"),
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "word"),
    ]
    await post(client, fields, model="other:/org/speech")
    [work] = client.dispatcher.works
    assert (work.model, work.bundle, work.audio) == ("org/speech", "other", b"RIFF")
    assert (work.language, work.prompt, work.temperature, work.word_timestamps) == ("en", "Names: Ada", 0.25, True)


USAGE = {"type": "duration", "seconds": 2.5}
SEGMENTS = [
    {"id": 0, "start": 0.0, "end": 1.0, "text": " Hello"},
    {"id": 1, "start": 1.0, "end": 2.5, "text": " world."},
]
WORDS = [{"word": "Hello", "start": 0.0, "end": 1.0}, {"word": "world.", "start": 1.0, "end": 2.5}]


async def test_json(client: Client) -> None:
    response = await post(client)
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"text": " Hello world.", "usage": USAGE}
    assert response.headers["x-sie-worker"].startswith("queue:")


@pytest.mark.parametrize(
    ("granularities", "more"),
    [
        ([], {}),
        (["segment"], {"segments": SEGMENTS}),
        (["word"], {"words": WORDS}),
        (["word", "segment"], {"segments": SEGMENTS, "words": WORDS}),
    ],
)
async def test_verbose_json_has_the_granularities_asked_for(
    client: Client, granularities: list[str], more: Any
) -> None:
    fields: Fields = [("timestamp_granularities[]", name) for name in granularities]
    response = await post(client, [("response_format", "verbose_json"), *fields])
    assert response.headers["content-type"] == "application/json"
    whole = {"task": "transcribe", "language": "en", "duration": 2.5, "text": " Hello world.", "usage": USAGE}
    assert response.json() == whole | more


@pytest.mark.parametrize(("detected", "asked", "told"), [("de", "en", "de"), ("", "en", "en"), ("", None, "unknown")])
async def test_the_language_detected_or_asked_for(client: Client, detected: str, asked: str | None, told: str) -> None:
    client.dispatcher.script = lambda work: TranscribeOutput(text="x", language=detected, duration_ms=1)
    fields: Fields = [("response_format", "verbose_json")] + ([("language", asked)] if asked else [])
    assert (await post(client, fields)).json()["language"] == told


async def test_text_srt_and_vtt(client: Client) -> None:
    text = await post(client, [("response_format", "text")])
    assert (text.headers["content-type"], text.text) == ("text/plain; charset=utf-8", " Hello world.")
    srt = await post(client, [("response_format", "srt")])
    assert srt.headers["content-type"] == "application/x-subrip"
    assert srt.text == ("1\n00:00:00,000 --> 00:00:01,000\nHello\n\n2\n00:00:01,000 --> 00:00:02,500\nworld.\n")
    vtt = await post(client, [("response_format", "vtt")])
    assert vtt.headers["content-type"] == "text/vtt; charset=utf-8"
    assert vtt.text == ("WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nHello\n\n00:00:01.000 --> 00:00:02.500\nworld.\n")


@pytest.mark.parametrize(
    "output",
    [None, ScoreOutput(scores=[], kind="logit"), TranscribeOutput(text="x", language="en", duration_ms=0)],
    ids=["nothing", "another result", "no duration"],
)
async def test_a_broken_result_is_an_error(client: Client, output: Any) -> None:
    client.dispatcher.script = lambda work: fakes.completed(output)
    assert error(await post(client)) == (500, "transport_failure", None)


async def test_audio_that_cannot_be_read_is_the_callers_fault(client: Client) -> None:
    client.dispatcher.script = lambda work: failed("INVALID_INPUT", "not audio", param="file")
    assert error(await post(client)) == (400, BAD, "file")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0, "00:00:00,000"),
        (-0.2, "00:00:00,000"),
        (0.0004, "00:00:00,000"),
        (1.9996, "00:00:02,000"),
        (59.9999, "00:01:00,000"),
        (3661.001, "01:01:01,001"),
        (360_000.0, "100:00:00,000"),
    ],
)
def test_clock(seconds: float, told: str) -> None:
    assert subtitles.clock(seconds, ",") == told


texts = st.text(alphabet=st.sampled_from("ab \n\r\t-><&é\u2028"), max_size=20)


@given(st.lists(texts, max_size=5))
def test_no_text_breaks_the_cues(lines: list[str]) -> None:
    segments = [Segment(id=i, start=i, end=i + 1, text=text) for i, text in enumerate(lines)]
    told = [segment for segment in segments if segment.text.strip()]
    blocks = subtitles.srt(segments).split("\n\n") if told else []
    assert [block.split("\n")[0] for block in blocks] == [str(number) for number in range(1, len(told) + 1)]
    assert [block.split("\n")[1][:8] for block in blocks] == [f"00:00:0{segment.id}" for segment in told]
    signature, *cues = subtitles.vtt(segments).split("\n\n")
    assert signature.strip() == "WEBVTT"
    assert [cue[:8] for cue in cues if cue] == [f"00:00:0{segment.id}" for segment in told]
    assert subtitles.vtt(segments).count("-->") == len(told)


def test_subtitles_of_silence() -> None:
    assert subtitles.srt([]) == ""
    assert subtitles.srt([Segment(0, 0.0, 1.0, "  ")]) == ""
    assert subtitles.vtt([]) == "WEBVTT\n"

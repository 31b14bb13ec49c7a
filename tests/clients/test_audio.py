"""Transcription on the real server, by the official OpenAI SDK, of speech that espeak-ng made."""

from __future__ import annotations

import re
from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI

from tests.engines.transcription.helpers import CONTAINERS, SENTENCES, encoded, speech, word_errors
from tests.live import KEY

MODEL = "openai/whisper-tiny.en"
SAID = SENTENCES[1]


@pytest.fixture(scope="module")
def client(base_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{base_url}/v1", api_key=KEY, timeout=280, max_retries=2) as made:
        yield made


@pytest.fixture(scope="module")
def audio() -> bytes:
    return speech(SAID)


def heard(text: str) -> bool:
    wrong, count = word_errors(SAID, text)
    return wrong / count < 0.2


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_is_transcribed_to_json(client: OpenAI, audio: bytes, container: str) -> None:
    reply = client.audio.transcriptions.create(model=MODEL, file=(f"a.{container}", encoded(audio, container)))
    assert heard(reply.text)
    assert reply.usage is not None
    assert reply.usage.type == "duration"
    assert 4.0 < reply.usage.seconds < 7.0


def test_text_is_the_transcript_alone(client: OpenAI, audio: bytes) -> None:
    reply = client.audio.transcriptions.with_raw_response.create(
        model=MODEL, file=("a.wav", audio), response_format="text", language="en", prompt="finance", temperature=0
    )
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert heard(reply.text)
    assert not reply.text.startswith(("{", '"'))


def test_verbose_json_has_words_and_segments_with_times(client: OpenAI, audio: bytes) -> None:
    reply = client.audio.transcriptions.create(
        model=MODEL,
        file=("a.wav", audio),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert heard(reply.text)
    assert reply.language == "en"
    assert reply.segments is not None
    assert reply.words is not None
    assert " ".join(segment.text for segment in reply.segments) == reply.text
    assert " ".join(word.word for word in reply.words) == reply.text
    for span in (*reply.segments, *reply.words):
        assert 0 <= span.start <= span.end <= float(reply.duration) + 0.05


@pytest.mark.parametrize(("form", "separator", "start"), [("srt", ",", "1\n00:"), ("vtt", ".", "WEBVTT\n\n00:")])
def test_subtitles_hold_the_sentence_with_its_times(
    client: OpenAI, audio: bytes, form: str, separator: str, start: str
) -> None:
    reply = client.audio.transcriptions.with_raw_response.create(
        model=MODEL,
        file=("a.wav", audio),
        response_format=form,  # type: ignore[call-overload]  # one overload for each literal
    )
    assert reply.text.startswith(start)
    time = rf"\d\d:\d\d:\d\d\{separator}\d\d\d"
    assert re.search(rf"^{time} --> {time}$", reply.text, re.MULTILINE)
    assert heard(re.sub(rf"{time} --> {time}|WEBVTT|^\d+$", "", reply.text, flags=re.MULTILINE))


def test_what_is_no_audio_is_refused_with_its_field(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.transcriptions.create(model=MODEL, file=("a.mp3", b"These are words and no sound." * 100))
    assert refused.value.param == "file"


def test_a_language_that_the_model_lacks_is_refused_with_its_field(client: OpenAI, audio: bytes) -> None:
    with pytest.raises(openai.BadRequestError, match="English only") as refused:
        client.audio.transcriptions.create(model=MODEL, file=("a.wav", audio), language="de")
    assert refused.value.param == "language"


def test_a_model_that_hears_nothing_is_refused(client: OpenAI, audio: bytes) -> None:
    with pytest.raises(openai.BadRequestError, match="does not support transcribe"):
        client.audio.transcriptions.create(model="spacy/en_core_web_sm", file=("a.wav", audio))

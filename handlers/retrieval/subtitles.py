"""Subtitle writers: SubRip (.srt) and WebVTT (.vtt) from segments with times in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from engines.protocol.events import Segment


def clock(seconds: float, separator: str) -> str:
    """``HH:MM:SS`` with milliseconds after ``separator``; rounded to the nearest millisecond, never negative."""
    milliseconds = max(0, round(seconds * 1000))
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{milliseconds // 1000:02}{separator}{milliseconds % 1000:03}"


def srt(segments: Sequence[Segment]) -> str:
    """SubRip: cues numbered from 1, a blank line between them. A segment without text has no cue."""
    cues = [(segment, text) for segment in segments if (text := _text(segment))]
    return "\n".join(f"{number}\n{_span(segment, ',')}\n{text}\n" for number, (segment, text) in enumerate(cues, 1))


def vtt(segments: Sequence[Segment]) -> str:
    """WebVTT: the signature line, a blank line, then the cues with a blank line between them."""
    cues = [(segment, text) for segment in segments if (text := _text(segment))]
    return "\n".join(["WEBVTT\n", *(f"{_span(segment, '.')}\n{escape(text, quote=False)}\n" for segment, text in cues)])


def _span(segment: Segment, separator: str) -> str:
    return f"{clock(segment.start, separator)} --> {clock(segment.end, separator)}"


def _text(segment: Segment) -> str:
    """The text of a cue: no blank line, which would end it."""
    return "\n".join(line.strip() for line in segment.text.splitlines() if line.strip())

"""Subtitle writers: SubRip (.srt) and WebVTT (.vtt) from segments with times in seconds."""

from __future__ import annotations

from collections.abc import Sequence

from engines.protocol.events import Segment


def clock(seconds: float, separator: str) -> str:
    """``HH:MM:SS`` with milliseconds after ``separator``; rounded to the nearest millisecond, never negative."""
    milliseconds = max(0, round(seconds * 1000))
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{milliseconds // 1000:02}{separator}{milliseconds % 1000:03}"


def _cue(segment: Segment, separator: str) -> str:
    # A blank line ends a cue in both formats and "-->" opens one in WebVTT: neither may come from the text.
    text = "\n".join(line for line in segment.text.strip().splitlines() if line.strip()).replace("-->", "->")
    return f"{clock(segment.start, separator)} --> {clock(segment.end, separator)}\n{text}\n"


def srt(segments: Sequence[Segment]) -> str:
    """SubRip: cues numbered from 1, a blank line between them."""
    return "\n".join(f"{number}\n{_cue(segment, ',')}" for number, segment in enumerate(segments, 1))


def vtt(segments: Sequence[Segment]) -> str:
    """WebVTT: the signature line, a blank line, then the cues with a blank line between them."""
    return "\n".join(["WEBVTT\n", *(_cue(segment, ".") for segment in segments)])

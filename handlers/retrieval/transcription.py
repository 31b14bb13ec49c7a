"""POST /v1/audio/transcriptions: OpenAI transcription. Source: contract G.

The form reader has already bounded the upload and refused unknown fields and fields given twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, cast

import msgspec

from engines.protocol.events import Completed, TranscribeOutput
from engines.protocol.work import TranscribeWork
from generated.sie import models
from generated.sie.interfaces import Context

from ..errors import Failure, InvalidField, UnsupportedField
from ..surface import Surface
from . import subtitles
from .calls import resolve, run
from .items import given

Format = Literal["json", "text", "srt", "verbose_json", "vtt"]
EXTENSIONS: Final = ("flac", "mp3", "mp4", "mpeg", "mpga", "m4a", "ogg", "wav", "webm")
_FORMATS: Final[dict[str, Format]] = {f: f for f in ("json", "text", "srt", "verbose_json", "vtt")}
_MEDIA: Final[dict[Format, str]] = {
    "json": "application/json",
    "verbose_json": "application/json",
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip",
    "vtt": "text/vtt; charset=utf-8",
}
_json: Final = msgspec.json.Encoder().encode


class Uploads(Protocol):
    """What the context of a form has beside a plain one: the filename of each file, by field."""

    filenames: Mapping[str, str]


class TranscriptionSurface(Surface):
    """The transcription operation."""

    async def proxy_openai_transcription(self, context: Context, body: models.OpenAITranscriptionRequest) -> bytes:
        """Transcribe one audio file, as JSON, text or subtitles.

        Raises:
            Failure: by contract A.5, translated by A.6.
        """
        filename = _filename(context)
        if not body.file:
            raise InvalidField("file", "'file' is empty")
        if given(body.stream):
            raise UnsupportedField("stream", "'stream' is not supported: transcripts are sent whole")
        form = _format(given(body.response_format))
        granularities = _granularities(body, form)
        target = resolve(self.services, context, body.model, "transcribe")
        work = TranscribeWork(
            **target.fields(context),
            audio=body.file,
            filename=filename,
            language=_language(given(body.language)),
            prompt=given(body.prompt),
            temperature=given(body.temperature),
            word_timestamps="word" in granularities,
        )
        completed = await run(self.services, context, work, target)
        output = _checked(completed)
        context.media_type = _MEDIA[form]
        match form:
            case "json":
                return _json({"text": output.text, "usage": _usage(output)})
            case "verbose_json":
                return _json(_verbose(output, work.language, granularities))
            case "text":
                return output.text.encode()
            case "srt":
                return subtitles.srt(output.segments).encode()
            case "vtt":
                return subtitles.vtt(output.segments).encode()


def _filename(context: Context) -> str:
    """The upload's filename, whose extension says that it is audio.

    Raises:
        InvalidField: another extension, or none.
    """
    name = cast(Uploads, context).filenames.get("file", "")
    if name.rpartition(".")[2].lower() not in EXTENSIONS or "." not in name:
        raise InvalidField("file", f"'file' must have a filename with one of the extensions: {', '.join(EXTENSIONS)}")
    return name


def _format(name: str | None) -> Format:
    if name is None:
        return "json"
    if name == "diarized_json":
        raise UnsupportedField("response_format", "response_format 'diarized_json' is not supported by this endpoint")
    try:
        return _FORMATS[name]
    except KeyError:
        raise InvalidField("response_format", f"'response_format' must be one of: {', '.join(_FORMATS)}") from None


def _granularities(body: models.OpenAITranscriptionRequest, form: Format) -> frozenset[str]:
    """The granularities asked for, without repetition.

    Raises:
        InvalidField: granularities with a format that cannot tell them.
    """
    asked = frozenset(given(body.timestamp_granularities__) or ())
    if asked and form != "verbose_json":
        raise InvalidField(
            "timestamp_granularities[]", "'timestamp_granularities[]' needs response_format=verbose_json"
        )
    return asked


def _language(language: str | None) -> str | None:
    if language is not None and not language.strip():
        raise InvalidField("language", "'language' must not be blank")
    return language


def _checked(completed: Completed) -> TranscribeOutput:
    output = completed.output
    if not isinstance(output, TranscribeOutput) or output.duration_ms <= 0:
        raise Failure(500, "transport_failure", "Malformed transcription result", native="INTERNAL_SERVER_ERROR")
    return output


def _usage(output: TranscribeOutput) -> dict[str, object]:
    return {"type": "duration", "seconds": output.duration_ms / 1000}


def _verbose(output: TranscribeOutput, asked: str | None, granularities: frozenset[str]) -> dict[str, Any]:
    """``segments`` and ``words`` are there when their granularity was asked for."""
    reply: dict[str, Any] = {
        "task": "transcribe",
        "language": output.language or asked or "unknown",
        "duration": output.duration_ms / 1000,
        "text": output.text,
        "usage": _usage(output),
    }
    if "segment" in granularities:
        reply["segments"] = output.segments
    if "word" in granularities:
        reply["words"] = output.words
    return reply

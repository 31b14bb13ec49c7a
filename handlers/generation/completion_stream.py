"""Text completion chunks: a state machine from events to frames, without HTTP (contract C.2)."""

from __future__ import annotations

from engines.protocol.events import Completed, Delta

from ..errors import Failure
from .chat_stream import chunk_head
from .finish import text_reason
from .frames import DONE, encode
from .identity import Identity
from .stream_errors import stream_error, unfinished


class CompletionWriter:
    """Writes the chunks of one completion: its text, then one chunk with the finish reason."""

    def __init__(self, identity: Identity) -> None:
        self._head = chunk_head(identity, "text_completion")
        self._prefix = self._head + b',"choices":[{"text":'
        self._closed = False

    def delta(self, event: Delta) -> bytes:
        said = self._prefix + encode(event.text) + _OPEN if event.text else b""
        if event.finish_reason is not None and not self._closed:
            self._closed = True
            said += self._prefix + b'"","index":0,"finish_reason":%s}]}\n\n' % encode(text_reason(event.finish_reason))
        return said

    def complete(self, event: Completed) -> bytes:
        if not self._closed:
            raise unfinished()
        return DONE

    def fail(self, failure: Failure) -> bytes:
        choice = b'"","index":0,"finish_reason":null}],"error":'
        return self._prefix + choice + encode(stream_error(failure)) + b"}\n\n" + DONE


_OPEN = b',"index":0,"finish_reason":null}]}\n\n'

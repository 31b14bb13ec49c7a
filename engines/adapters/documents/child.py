"""The process that reads documents: what a hostile file can reach is this process, and its time and memory have ends.

Requests come on the standard input and replies leave on the standard output, each a MessagePack struct behind its
length (four bytes, big-endian). It ends with its input. A document that takes longer than its time ends it too.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from .formats import Unreadable, read

MEMORY = 1 << 30
"""Bytes of address space."""

LENGTH = 4


class Request(msgspec.Struct, frozen=True):
    """A document, its format when the caller named one, the seconds that reading it may take, the most PDF pages."""

    data: bytes
    form: str | None
    seconds: float
    pages: int | None


class Reply(msgspec.Struct, frozen=True):
    """The document's text, or why there is none. ``memory``: resident bytes of the process now."""

    text: str | None = None
    error: str = ""
    memory: int = 0


def answer(request: Request) -> Reply:
    """Read one document; SIGALRM, which nobody handles, ends the process when the time is over."""
    signal.setitimer(signal.ITIMER_REAL, request.seconds)
    try:
        text = read(request.data, request.form, request.pages)
    except Unreadable as error:
        return Reply(error=str(error), memory=_held())
    except (MemoryError, RecursionError):
        return Reply(error="reading the document needs too much memory", memory=_held())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return Reply(text, memory=_held())


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer until the input ends."""
    while len(header := requests.read(LENGTH)) == LENGTH:
        data = requests.read(int.from_bytes(header, "big"))
        reply = msgspec.msgpack.encode(answer(msgspec.msgpack.decode(data, type=Request)))
        replies.write(len(reply).to_bytes(LENGTH, "big") + reply)
        replies.flush()


def _held() -> int:
    """Resident bytes; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()  # the libraries comment on every oddity of a file
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write between the replies
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()

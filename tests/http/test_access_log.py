"""The access log shares its output with other processes: lines stay whole."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec

from handlers.http.access import Line, _pieces

WRITER = """
import msgspec
from handlers.http.access import Line, to_stdout
lines = [Line(0.0, "POST", "/v1/chat/completions", 200, 1.0, str(number)) for number in range(300)]
for _ in range(30):
    to_stdout(msgspec.json.Encoder().encode_lines(lines))
"""


def test_lines_of_several_processes_stay_whole() -> None:
    command = ["sh", "-c", '"$@" & "$@" & "$@" & wait', "sh", sys.executable, "-c", WRITER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as writers:
        assert writers.stdout is not None
        shown = writers.stdout.read(1)
        time.sleep(1.0)  # all wait now, in the midst of a write that the pipe has no room for
        while piece := writers.stdout.read(3000):
            shown += piece
    lines = [msgspec.json.decode(text, type=Line) for text in shown.splitlines()]
    assert len(lines) == 3 * 30 * 300


def test_a_line_of_any_length_goes_alone() -> None:
    long = b"x" * 10_000 + b"\n"
    lines = b"a\n" + long + b"b\n" * 3000
    pieces = list(_pieces(lines))
    assert b"".join(pieces) == lines
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert [piece for piece in pieces if len(piece) > 4096] == [long]

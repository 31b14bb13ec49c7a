"""Ends the processes of the engines when their owner is killed: vLLM's own would go on generating for nobody.

Everything an engine starts inherits a token in its environment. A shell waits on a pipe that only this process holds
open; when it closes, the shell kills what carries the token.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys

VARIABLE = "SIE_ENGINE_OWNER"
SCRIPT = f"""
read -r _
for round in 1 2 3; do
    found=
    for process in /proc/[0-9]*; do
        # the resource tracker ends by itself, after it has removed shared memory that was left
        if grep -aqsF "{VARIABLE}=$1" "$process/environ" && ! grep -aqsF resource_tracker "$process/cmdline"; then
            kill -9 "${{process#/proc/}}"
            found=1
        fi
    done
    [ -n "$found" ] || exit 0
    sleep 0.5
done
"""

_shell: subprocess.Popen[bytes] | None = None


def start() -> None:
    """Watch over all engines of this process, from now on (once; only Linux has the means)."""
    global _shell
    if _shell is not None or not sys.platform.startswith("linux"):
        return
    token = secrets.token_hex(16)
    # in a session of its own: a signal to the terminal's processes must not end the watch before its time
    _shell = subprocess.Popen(
        ["/bin/sh", "-c", SCRIPT, "guard", token],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.environ[VARIABLE] = token

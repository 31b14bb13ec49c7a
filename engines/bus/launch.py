"""Runs a command that dies with its parent: ``python launch.py PARENT_PID COMMAND...``

The kernel's parent-death signal survives ``exec``, so the command itself needs to know nothing of it. Setting it here
and not between fork and exec keeps the parent free of code that is unsafe in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(number: int, parent: int) -> None:
    """Ask the kernel to send ``number`` to this process when ``parent`` ends; elsewhere than on Linux, do nothing."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        # it ended before the request
        os.kill(os.getpid(), number)


if __name__ == "__main__":
    die_with_parent(signal.SIGKILL, int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])

"""Child processes that end with this process, even if it is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_PROGRAM: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(sys.argv[2]), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(143)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Asks Linux for a signal at the death of the parent (PR_SET_PDEATHSIG), which outlives exec. The
parent may have died before the request."""


def ends_with_parent(command: Sequence[str], number: signal.Signals = signal.SIGTERM) -> list[str]:
    """Returns the command line that runs ``command`` in a process that gets the signal ``number``
    when this process ends, however it ends. On systems other than Linux it is the command itself.
    """
    if sys.platform != "linux":
        return list(command)
    program = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(os.getpid()), str(int(number))]
    return [*program, *command]

"""Asks NVML in a child process, since a call of NVML may hang in the kernel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

PROGRAM: Final = (sys.executable, "-I", str(Path(__file__).with_name("nvml.py")))
ANSWER_SECONDS: Final = 15.0
"""Longest wait for NVML, which initializes cards that no program uses: some seconds for eight."""
KILL_SECONDS: Final = 1.0
"""Longest wait for the end of a killed child."""


class NoNvml(Exception):
    """NVML does not answer; the message says why."""


class NvmlChild:
    """Starts no further child while one hangs."""

    def __init__(self, program: Sequence[str] = PROGRAM) -> None:
        self._program = program
        self._hanging: subprocess.Popen[bytes] | None = None
        """A child that was killed, and that had not ended yet."""

    def ask(self, seconds: float = ANSWER_SECONDS, kill_seconds: float = KILL_SECONDS) -> bytes:
        """What the program printed. ``seconds``: the longest wait for it; ``kill_seconds``: the
        longest wait for the end of the killed child. Raises NoNvml."""
        if self._hanging is not None and self._hanging.poll() is None:
            raise NoNvml(f"process {self._hanging.pid}, which asked NVML, hangs in the driver")
        # Not `subprocess.run`: after its time limit it waits for the end of the child, and a child
        # that hangs in the kernel does not end.
        child = self._hanging = subprocess.Popen(
            self._program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            out, err = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            with suppress(subprocess.TimeoutExpired):
                child.wait(kill_seconds)
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
            raise NoNvml(f"NVML did not answer within {seconds:g} s") from None
        if child.returncode:
            lines = err.decode(errors="replace").strip().splitlines()
            raise NoNvml(lines[-1] if lines else f"the program ended with {child.returncode}")
        return out

"""Progress of long commands is for terminals."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

PROGRAM = """
import sys
from admittance.runtime.process.progress import Steps
with Steps("backup") as steps:
    steps.begin("KV_admittance [x]", 10)
    steps.reach(5)
"""


def test_progress_is_shown_on_a_terminal_only() -> None:
    piped = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    assert (piped.stdout, piped.stderr) == (b"", b"")
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm"}
    shown = subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=theirs, env=env, check=True
    )
    os.close(theirs)
    drawn = b""
    try:
        while part := os.read(ours, 4096):
            drawn += part
    except OSError:
        pass  # The other side is closed.
    os.close(ours)
    assert shown.stdout == b""
    assert b"backup KV_admittance [x]" in drawn

"""Child processes end with the process that started them."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from admittance.runtime.process.child_process import ends_with_parent

PARENT = """
import signal, subprocess, sys
number = signal.Signals(int(sys.argv[1]))
from admittance.runtime.process.child_process import ends_with_parent
ignores = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
command = [sys.executable, "-c", ignores] if number == signal.SIGKILL else ["sleep", "600"]
child = subprocess.Popen(ends_with_parent(command, number))
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_child_ends_when_its_parent_is_killed(number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(number.value)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
    finally:
        parent.kill()
        parent.communicate()
    # The new parent of the child reaps it when it likes, until then it is a zombie.
    assert not child.is_running() or _ends(child)


def _ends(child: psutil.Process) -> bool:
    for _ in range(300):
        try:
            if child.status() == psutil.STATUS_ZOMBIE:
                return True
            child.wait(0.1)
        except psutil.NoSuchProcess:
            return True
        except psutil.TimeoutExpired:
            continue
    return False


def test_a_child_has_the_exit_status_of_its_command() -> None:
    command = ends_with_parent([sys.executable, "-c", "import sys; sys.exit(7)"])
    assert subprocess.run(command, check=False).returncode == 7

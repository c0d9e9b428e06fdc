# (contextlib is not worth its import time here)
"""Runs the programs by which the shim asks a container engine, or gives it an order. The shim
imports this module, so the module imports little.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from collections.abc import Iterable

PROBE_SECONDS = 5.0
"""Longest wait in seconds for the answers of all probes: after this time the shim stops the pods
without the missing answers."""
PROGRAM_SECONDS = 60.0
"""Longest wait in seconds for a program that gives the engine an order."""
PAUSE_MAX = 5.0
"""Longest pause in seconds before such a program runs again."""
CLIENT_CODES = (125, 126, 127)
"""Exit codes with which the client of an engine ends if it could not pull an image, make a
container or start its program; a container may end with them, too."""
_CLIENT_ERRORS = (b"docker: ", b"Error: ", b"podman: ", b"[FATAL tini (")
_SIGNS_OF_LOSS = (
    *(b"error waiting for container: ", b"error during connect: "),
    *(b"Cannot connect to the Docker daemon", b"unable to connect to Podman"),
)
_LAST_LINES = 5
"""How many lines at the end of the output may be the last words of a client."""


def client_error(output: bytes) -> str:
    """What the client of an engine says about its failure at the end of the output; empty: nothing
    was found."""
    for line in reversed(output.splitlines()):
        if line.startswith(_CLIENT_ERRORS):
            return line.decode("utf-8", "replace").removeprefix("docker: ").strip()
    return ""


def end_text(code: int, output: bytes) -> str:
    """How a process ended that failed, as a clause. ``code``: negative for a signal. ``output``:
    the end of its output, if it is the client of an engine."""
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    said = client_error(output) if code in CLIENT_CODES else ""
    return f"{said} ({how})" if said else how


def lost_engine(code: int, output: bytes) -> str:
    """What the client of an engine says at the end of its output if it has lost the engine, or
    never reached it; empty: it has not said so. Its container may run on."""
    if code == CLIENT_CODES[0]:
        for line in reversed(output.splitlines()[-_LAST_LINES:]):
            if any(sign in line for sign in _SIGNS_OF_LOSS):
                said = line.decode("utf-8", "replace").removeprefix("docker: ").strip()
                return f"the container engine was lost: {said}"
    return ""


def run_program(argv: list[str], folder: str) -> bool:
    """Runs a program in the folder to its end; returns whether its status is 0. A program that
    hangs is killed after `PROGRAM_SECONDS`."""
    pid = _start(argv, folder)
    if not pid:
        return False
    return _status(pid, time.monotonic() + PROGRAM_SECONDS) == 0


def end_containers(programs: list[list[str]], folder: str) -> None:
    """Runs programs that remove containers, again and again until each has done so: as long as the
    engine does not answer, its containers may run, and the job must not run again beside them."""
    pause = 0.05
    while not all(run_program(argv, folder) for argv in programs):
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_MAX)


def _start(argv: list[str], folder: str) -> int:
    """The pid of the started program; 0: there is no such program."""
    try:
        os.chdir(folder)
        return os.posix_spawn(argv[0], argv, dict(os.environ), setsid=True)
    except OSError:
        return 0


def _status(pid: int, until: float) -> int:
    """The exit status of a program, which is killed if it has not ended by the time ``until``."""
    found, status = os.waitpid(pid, os.WNOHANG)
    while not found and time.monotonic() < until:
        time.sleep(0.01)
        found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def ended_containers(probes: Iterable[tuple[int, list[str], str]]) -> set[int]:
    """The pids of processes whose containers have ended already. ``probes``: for each pid its probe
    and the folder in which the probe runs."""
    asked = {}
    for pid, argv, folder in probes:
        if prober := _start(argv, folder):
            asked[prober] = pid
    until = time.monotonic() + PROBE_SECONDS
    return {pid for prober, pid in asked.items() if _status(prober, until) == 0}

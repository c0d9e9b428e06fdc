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


CLIENT_CODES = (125, 126, 127)
"""Exit codes with which the client of an engine ends if it could not pull an image, make a
container or start its program; a container may end with them, too."""
_CLIENT_ERRORS = (b"docker: ", b"Error: ", b"podman: ")


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


def run_program(argv: list[str], folder: str) -> None:
    """Runs a program in the folder to its end, whatever its status."""
    try:
        os.chdir(folder)
        os.waitpid(os.posix_spawn(argv[0], argv, dict(os.environ), setsid=True), 0)
    except OSError:
        pass  # there is no such program


def ended_containers(probes: Iterable[tuple[int, list[str], str]]) -> set[int]:
    """The pids of processes whose containers have ended already. ``probes``: for each pid its probe
    and the folder in which the probe runs."""
    asked = {}
    for pid, argv, folder in probes:
        try:
            os.chdir(folder)
            asked[os.posix_spawn(argv[0], argv, dict(os.environ), setsid=True)] = pid
        except OSError:
            pass  # there is no such program
    ended = set()
    until = time.monotonic() + PROBE_SECONDS
    for prober, pid in asked.items():
        found, status = os.waitpid(prober, os.WNOHANG)
        while not found and time.monotonic() < until:
            time.sleep(0.01)
            found, status = os.waitpid(prober, os.WNOHANG)
        if not found:
            os.killpg(prober, signal.SIGKILL)
            _, status = os.waitpid(prober, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            ended.add(pid)
    return ended

# ruff: noqa: PTH118, PTH123
# (pathlib is not worth its import time here)
"""Runs the prolog and the epilog of a runner for a run. The shim imports this module, so the module
imports little."""

from __future__ import annotations

import os
import select
import signal
import time

from admittance.runner.jobs.pod_process import IGNORED, signal_group

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from typing import Any

SHELL = "/bin/sh"
KEPT_BYTES = 65_536
"""The most bytes of output of a hook that are kept, the newest."""
TEXT_MAX = 300
"""The most characters of the last line of the output in a message."""
PAUSE_SECONDS = 0.02
KILL_SECONDS = 5.0
"""Longest wait for the end of a killed hook: a process may hang in the kernel."""


class RunHooks:
    """The hooks of one run. ``folder``: that of the run; ``spec``: what the shim has read there.
    ``drain``: why the machine must get no new jobs. ``left``: hooks that a kill has not ended."""

    def __init__(self, folder: str, spec: dict[str, Any]) -> None:
        self._folder = folder
        self._mark = spec["mark"]
        self._hooks: dict[str, Any] = spec.get("hooks") or {}
        self.has_begun = False
        self.drain = ""
        self.left: set[int] = set()

    def has(self, name: str) -> bool:
        """Whether there is a hook of this name, ``prolog`` or ``epilog``."""
        return bool(self._hooks.get(name))

    def run(self, name: str, **more: object) -> str:
        """Runs a hook if there is one; returns why it failed, or ""."""
        if not self.has(name):
            return ""
        os.chdir("/")  # the shim may be in a folder of the job
        env = {**os.environ, **hook_env(self._hooks, self._mark, name, **more)}
        log = os.path.join(self._folder, f"{name}.log")
        failed, left = run_hook(name, self._hooks[name], env, self._hooks["seconds"], log)
        self.drain = "; ".join(filter(None, (self.drain, failed)))
        if left:
            self.left.add(left)
        return failed


def hook_env(hooks: dict[str, Any], mark: str, name: str, **more: object) -> dict[str, str]:
    """The environment of a hook beside that of its runner. ``hooks``: those of the spec of a
    run."""
    own = {"ADMITTANCE_RUN": mark, "ADMITTANCE_HOOK": name}
    return {**hooks["env"], **own, **{key: str(value) for key, value in more.items()}}


def run_hook(
    name: str, command: str, env: dict[str, str], seconds: float, log: str
) -> tuple[str, int]:
    """Runs a hook to its end, at most ``seconds``; returns why it failed, or "", and its pid if a
    kill has not ended it, else 0. ``name``: prolog or epilog. ``log``: the file for the end of its
    output."""
    reading, writing = os.pipe()
    output = b""
    try:
        pid = os.posix_spawn(
            SHELL,
            [SHELL, "-c", command],
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writing, 1),
                (os.POSIX_SPAWN_DUP2, writing, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=IGNORED,
        )
    except OSError as error:
        os.close(reading)
        return f"{name} failed: cannot start {SHELL}: {error.strerror}", 0
    finally:
        os.close(writing)
    try:
        os.set_blocking(reading, False)
        ends, killed, status = time.monotonic() + seconds, False, None
        while status is None:
            # A process that the hook has left behind may keep the pipe open, so the end of the
            # hook itself is what counts.
            select.select([reading], [], [], PAUSE_SECONDS)
            output = read_more(reading, output)
            waited, code = os.waitpid(pid, os.WNOHANG)
            if waited:
                status = os.waitstatus_to_exitcode(code)
            elif time.monotonic() >= ends:
                if killed:
                    break
                killed, ends = True, time.monotonic() + KILL_SECONDS
                signal_group(pid, signal.SIGKILL)
        output = read_more(reading, output)
    finally:
        os.close(reading)
    signal_group(pid, signal.SIGKILL)  # what it has left behind in its group
    try:
        with open(log, "wb") as file:
            file.write(output)
    except OSError:
        pass  # a disk without room: the message has the last line
    return problem_of(name, status, killed, seconds, output), 0 if status is not None else pid


def read_more(file: int, output: bytes) -> bytes:
    """The output with what can be read of it now."""
    for _ in range(64):
        try:
            data = os.read(file, 65_536)
        except BlockingIOError:
            break
        if not data:
            time.sleep(PAUSE_SECONDS)
            break
        output = (output + data)[-KEPT_BYTES:]
    return output


def problem_of(name: str, status: int | None, killed: bool, seconds: float, output: bytes) -> str:
    """Why a hook failed; "": it succeeded. ``status``: its exit code, negative for a signal; None:
    it has not ended although it was killed. ``killed``: its time was over."""
    lines = output.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")[:TEXT_MAX]
    said = f": {last}" if last else ""
    if killed:
        stays = "" if status is not None else ", and a kill has not ended it"
        return f"{name} failed: it has not ended within {seconds:g} s{stays}{said}"
    if status:
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        return f"{name} failed: {how}{said}"
    return ""

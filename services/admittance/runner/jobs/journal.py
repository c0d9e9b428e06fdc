# ruff: noqa: PTH118
# (pathlib and contextlib are not worth their import time here)
"""Writes the journal of a run, and reads the lease of its runner. The shim imports this module, so
the module imports little.

Lines: ``{"e": "start", "p": pod, "pid": …, "t": start time}``, ``{"e": "end", "p": pod,
"code": …, "whole": counts as a success}``, ``{"e": "retry", "p": pod, "message": …, "failed": of
all pods so far, "due": boot seconds, "left": further failures}`` when a pod or a container of it
has failed and the job goes on; "due" is null if its index has failed for good; ``{"e": "up"}`` once
the first processes run, ``{"e": "ready"}`` once every pod runs or has succeeded, ``{"e": "stop",
"why": "stopped" | "lost", "pods": […]}`` before these pods are stopped, ``{"e": "warned", "set":
pod set, "signal": number, "why": "time" | "drain"}`` before its pods are warned of the end of the
job's time or of a drain of the machine, and last ``{"e": "outcome", "kind": "succeeded" | "failed"
| "stopped" | "lost" | "unprepared", "message": …, "code": exit code that failed the job, or 0,
"reason": the policy that failed the job, or "", "drain": why the machine must get no new jobs, or
""}``. With hooks of the runner, ``{"e":
"begun"}`` comes before the prolog, and ``{"e": "result", …}`` before the epilog, with the kind,
message, code and reason of a job that has a result.
"""

from __future__ import annotations

import errno
import json
import os

from admittance.runner.disk.small_files import read_bytes
from admittance.runner.jobs.job_policy import NEVER

DRAIN = "drain"
"""The file in the folder of a run that says when the machine must be empty."""

JOURNAL_MAX = 128 << 20
"""The size in bytes of a journal that is full: the runner keeps the ends of all pods in memory. A
million pods have about as many bytes."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a disk or a quota without room, which may have room again."""


def read_lease(path: str) -> float:
    """When the runner began its last renewal of all claims, in seconds since boot; 0: not known."""
    try:
        return float(read_bytes(path))
    except (OSError, ValueError):
        return 0.0


def read_drain(folder: str) -> float:
    """When the machine must be empty, in seconds since boot, as the runner has noted it in the
    run's folder; infinite: it need not be."""
    try:
        return float(read_bytes(os.path.join(folder, DRAIN)))
    except (OSError, ValueError):
        return NEVER


class JournalWriter:
    """Collects lines and appends them to the journal in the run's folder."""

    def __init__(self, folder: str) -> None:
        self._lines: list[dict[str, object]] = []
        self._data = b""  # lines that are not completely written
        self._durable = False
        self._file = os.open(
            os.path.join(folder, "journal"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        self._size = os.fstat(self._file).st_size

    @property
    def is_full(self) -> bool:
        """Whether the run must end, since each of its pods makes the journal longer."""
        return self._size >= JOURNAL_MAX

    def write(self, line: dict[str, object], *, durable: bool) -> None:
        self._lines.append(line)
        self._durable = self._durable or durable

    def flush(self, notify: str, key: str) -> bool:
        """Appends the collected lines, synced if one of them is ``durable``; then writes the run's
        key to the pipe ``notify``, for the runner. Returns False if the disk has no room: the next
        call tries again."""
        if not (self._lines or self._data or self._durable):
            return True
        self._data += "".join(json.dumps(line) + "\n" for line in self._lines).encode()
        self._lines = []
        try:
            while self._data:
                written = os.write(self._file, self._data)
                self._size += written
                self._data = self._data[written:]
            if self._durable:
                os.fsync(self._file)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False
        self._durable = False
        self._notify(notify, key)
        return True

    def _notify(self, notify: str, key: str) -> None:
        try:
            # Without a runner the pipe cannot be opened; the next runner reads the journal anyway.
            pipe = os.open(notify, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return
        try:
            os.write(pipe, (key + "\n").encode())
        except OSError:
            pass  # the pipe is full, but the runner also checks every run from time to time
        finally:
            os.close(pipe)

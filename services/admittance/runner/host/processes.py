"""Ends the processes of a run after its shim has died, and waits until they are gone.

`/proc/PID/environ` is empty as soon as the kernel begins to free the memory of a killed process,
which takes a second for some gigabytes, and longer for the memory of a GPU. So the mark in the
environment finds processes, but only the state of a process says that it is gone.

A program may start others without the mark, and their parents may be gone, shim and fork server
included. So every process of a run also has the run's tag (`jobs/strays.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from admittance.runner.jobs.strays import children
from admittance.runtime import clock

SWEEPS_MAX: Final = 20
GONE_SECONDS: Final = 20.0
"""Most seconds to wait until killed processes are gone: a process may hang in the kernel."""
LOOK_SECONDS: Final = 0.02
MODULE: Final = b"admittance.runner.jobs.fork_server"
"""A part of the command line of every fork server."""
TAG_LINE: Final = b"\nMax file locks "
"""What comes before the tag in `/proc/PID/limits`."""


class ProcessRef(NamedTuple):
    """A process, with its start time in clock ticks since boot: by then another process may have
    the pid. Start time 0: not known."""

    pid: int
    ticks: int


def tag_of(mark: str) -> int:
    """The tag of the processes of a run: a number so high that it limits nothing."""
    return 1 << 62 | int.from_bytes(blake2b(mark.encode(), digest_size=8).digest()) >> 2


async def end_processes(
    mark: str,
    processes: Mapping[int, int],
    fork_server: ProcessRef,
    *,
    seconds: float = GONE_SECONDS,
) -> bool:
    """Kills the remaining processes of a run, and waits until they are gone, at most ``seconds``;
    returns whether they are gone.

    ``mark``: the run's mark in the environment of its processes, from which their tag follows, too.
    ``processes``: the first processes of the run's process groups, with their start times.
    ``fork_server``: the fork server that forked the shim; it kills what neither has a known process
    group nor the mark.
    """
    killed = await asyncio.to_thread(_kill, mark, processes)
    deadline = clock.monotonic() + seconds
    while any(map(is_alive, killed)) or _has_strays(fork_server):
        if clock.monotonic() >= deadline:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


def _kill(mark: str, processes: Mapping[int, int]) -> set[ProcessRef]:
    killed = set()
    for pid, ticks in processes.items():
        if ticks and _stat(pid)[1] == ticks:
            killed.add(ProcessRef(pid, ticks))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
    # The search for processes with the mark is repeated while it finds one: a killed process may
    # have forked just before.
    for _ in range(SWEEPS_MAX):
        more = _kill_marked(f"ADMITTANCE_RUN={mark}".encode(), tag_of(mark))
        if more <= killed:
            break
        killed |= more
    return killed


def _kill_marked(mark: bytes, tag: int) -> set[ProcessRef]:
    killed = set()
    for each in psutil.process_iter():
        is_marked = mark in _read(each.pid, "environ").split(b"\0")
        if is_marked or _tag(each.pid) == tag:
            process = ProcessRef(each.pid, _stat(each.pid)[1])
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue
            except psutil.Error:
                # This process may not end a process of another user.
                if not is_marked:
                    continue
            if is_alive(process):
                killed.add(process)
    return killed


def _tag(pid: int) -> int:
    soft = _read(pid, "limits").partition(TAG_LINE)[2].split(maxsplit=1)[:1]
    return int(soft[0]) if soft and soft[0].isdigit() else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def is_alive(process: ProcessRef) -> bool:
    """Whether the process has not ended. A process that has ended and that its parent has not
    reaped yet holds nothing any more: it counts as gone."""
    state, ticks = _stat(process.pid)
    return ticks == process.ticks and ticks != 0 and state not in ("Z", "X")


def _has_strays(fork_server: ProcessRef) -> bool:
    """Whether the fork server has children that are no shims. A shim has the command line of the
    fork server, because it was forked and has started no program."""
    if not is_alive(fork_server):
        return False
    shim = _read(fork_server.pid, "cmdline")
    # If the fork server had died before the shim wrote down its parent, this is the init process.
    return MODULE in shim and any(_is_stray(pid, shim) for pid in children(fork_server.pid))


def _is_stray(pid: int, shim: bytes) -> bool:
    return _read(pid, "cmdline") != shim and _stat(pid)[0] not in ("", "Z", "X")


def _stat(pid: int) -> tuple[str, int]:
    """The state and the start time of a process; ``("", 0)`` if there is no such process."""
    try:
        fields = _read(pid, "stat").rsplit(b")", 1)[1].split()
        return fields[0].decode("ascii"), int(fields[19])
    except (IndexError, ValueError):
        return "", 0

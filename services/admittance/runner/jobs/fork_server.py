# ruff: noqa: PTH108, PTH118, SIM105
# (contextlib and pathlib are not worth their import time here)
"""The fork server: forks a shim for every run folder named on its standard input, and ends what a
dead shim leaves behind. A process without site packages runs it.

A shim adopts the orphans of its job. If the shim dies, the kernel makes the fork server their
parent, whatever session, process group and environment they have. The fork server kills and reaps
every child that is no shim. It lives until its standard input has ended and its last shim is gone.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys

from admittance.runner.jobs.pod_process import close_inherited_files, start_time
from admittance.runner.jobs.shim import Shim
from admittance.runner.jobs.strays import adopt_strays, children

BLOCKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)


def fork_server() -> None:
    """Serves until standard input has ended and the last shim is gone."""
    close_inherited_files()
    adopt_strays()
    wake, poke = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(poke, False)
    signal.set_wakeup_fd(poke, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    shims: set[int] = set()
    pending = b""
    is_named = True  # whether the runner may name further runs
    has_strays = False
    while is_named or shims or has_strays:
        ready, _, _ = select.select([0, wake] if is_named else [wake], [], [])
        if wake in ready:
            try:
                while os.read(wake, 512):
                    pass
            except BlockingIOError:
                pass
            has_strays = reap(shims)
        if 0 in ready:
            data = os.read(0, 65536)
            is_named = bool(data)
            *folders, pending = (pending + data).split(b"\n")
            for folder in folders:
                shims.add(fork_shim(folder, (wake, poke)))


def reap(shims: set[int]) -> bool:
    """Reaps ended children, removes ended shims from ``shims``, and kills all other children.
    Returns whether there were such others: their own children come to this process when they are
    gone, and the signal of their end causes another call."""
    try:
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            shims.discard(pid)
    except ChildProcessError:
        return False
    strays = [pid for pid in children(os.getpid()) if pid not in shims]
    for pid in strays:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    return bool(strays)


def fork_shim(folder: bytes, pipe: tuple[int, int]) -> int:
    """Forks a shim for the run in ``folder``; returns its pid. ``pipe``: files of the fork server
    that the shim must not have."""
    # Signals stay blocked until the shim has handlers, so that no signal ends the shim before.
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for file in pipe:
                os.close(file)
            os.setsid()
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            run_shim(os.fsdecode(folder))
            code = 0
        except BaseException as error:
            sys.stderr.write(f"shim of {os.fsdecode(folder)}: {error!r}\n")
        finally:
            sys.stderr.flush()
            os._exit(code)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED)
    return pid


def run_shim(folder: str) -> None:
    """Runs as the shim of the run in ``folder``, unless the run has a shim already."""
    adopt_strays()
    alive = os.open(os.path.join(folder, "alive"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    mine = os.path.join(folder, f"shim.{os.getpid()}")
    file = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    processes = os.getpid(), os.getppid()
    os.write(file, "".join(f"{pid} {start_time(pid)} " for pid in processes).encode())
    os.close(file)
    try:
        os.link(mine, os.path.join(folder, "shim"))
    except FileExistsError:
        return
    finally:
        os.unlink(mine)
    Shim(folder).run()

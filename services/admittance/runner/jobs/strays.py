# ruff: noqa: SIM105
# (contextlib is not worth its import time here)
"""What all processes of a run inherit from the shim: no new privileges, and a tag for the time
after the death of the shim. Processes that left their pod: the shim adopts and ends them. The shim
imports this module, so the module imports little.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal

from admittance.runner.disk.small_files import read_bytes

TYPE_CHECKING = False  # to import `typing` would cost milliseconds in every shim
if TYPE_CHECKING:
    from collections.abc import Container

SUBREAPER = 36  # the number of PR_SET_CHILD_SUBREAPER in linux/prctl.h
PDEATHSIG = 1  # the number of PR_SET_PDEATHSIG in linux/prctl.h
NO_NEW_PRIVS = 38  # the number of PR_SET_NO_NEW_PRIVS in linux/prctl.h
LOCKS = 10  # the number of RLIMIT_LOCKS in linux/resource.h


_libc = ctypes.CDLL(None)


def adopt_strays() -> None:
    """Makes this process the parent of orphaned processes, like the init of a container: otherwise
    a process that double-forks out of its group would outlive its job."""
    try:
        _libc.prctl(SUBREAPER, 1, 0, 0, 0)
    except AttributeError:
        pass  # Only Linux can adopt processes; elsewhere only the process group is ended.


def tag_processes(tag: int) -> None:
    """Gives this process, and all processes that it starts from now on, the tag of their run.

    The tag is the soft limit RLIMIT_LOCKS, which the kernel ignores since Linux 2.4.25. A process
    inherits it whatever session, environment, open files, folder and user it takes, and anyone may
    read it in /proc/PID/limits.
    """
    try:
        resource.setrlimit(LOCKS, (tag, resource.getrlimit(LOCKS)[1]))
    except (OSError, ValueError):
        pass  # An outer program has set a lower hard limit, or the system has no such limit.


def end_with_parent(parent: int) -> None:
    """Makes the kernel kill this process, but none of its children, when the process ``parent``
    that has forked it ends. Call it after the change of the Unix user, which would undo it."""
    try:
        _libc.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except AttributeError:
        return  # Only Linux can do this.
    if os.getppid() != parent:
        os._exit(127)


def forbid_new_privileges() -> None:
    """Makes ``sudo`` and other programs with more rights ineffective for this process and for all
    processes that it starts. Raises OSError."""
    try:
        refused = _libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    except AttributeError:
        return  # Only Linux can do this.
    if refused:
        raise OSError("the kernel refuses PR_SET_NO_NEW_PRIVS")


def children(pid: int) -> list[int]:
    """The children of the process; empty if the system does not say."""
    try:
        return [int(child) for child in read_bytes(f"/proc/{pid}/task/{pid}/children").split()]
    except (OSError, ValueError):
        return []


def end_strays(spared: Container[int] = ()) -> None:
    """Kills all processes that this process has adopted, and the children of the killed
    processes. ``spared``: processes that a kill does not end."""
    for _ in range(100):  # a round kills one generation of processes
        strays = [pid for pid in children(os.getpid()) if pid not in spared]
        if not strays:
            return
        for pid in strays:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, PermissionError, ChildProcessError):
                pass

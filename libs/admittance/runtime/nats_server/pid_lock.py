"""Files that one process locks (flock), and that name its pid for the refusal of others."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

UNKNOWN: Final = "unknown"


class LockHeld(Exception):
    """Another process has the lock. ``pid``: as the file names it, or `UNKNOWN`."""

    def __init__(self, pid: str) -> None:
        super().__init__(pid)
        self.pid = pid


def lock(path: Path) -> int:
    """Locks the file, which is made if it does not exist, for as long as the returned descriptor is
    open in any process. Raises LockHeld, and OSError if the file cannot be opened or locked."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise LockHeld(pid or UNKNOWN) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def write_pid(descriptor: int, pid: int) -> None:
    """Names the process that has the lock. Raises OSError."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{pid}\n".encode(), 0)

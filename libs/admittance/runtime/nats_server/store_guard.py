"""Guards the store of a data folder against a second nats-server, which would destroy the store:
nats-server itself takes no lock.

- ``nats.lock``: locked (flock) by the nats-server, which inherits the open file, until it ends.
- The command line of a server names its ``nats.conf``, in any spelling of the folder's path.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import psutil

from admittance.runtime.errors import SetupError

STORE_LOCK: Final = "nats.lock"


def is_command_of(command: Sequence[str], config: Path, cwd: str = "") -> bool:
    """Whether the command line is that of a nats-server with this configuration file, which may be
    missing. ``cwd``: the working folder of its process; "": unknown."""
    if len(command) != 3 or Path(command[0]).name != "nats-server" or command[1] != "-c":
        return False
    typed = Path(cwd, command[2])
    if typed.name != config.name or not typed.is_absolute():
        return False
    return os.path.realpath(typed.parent) == os.path.realpath(config.parent)


def serves(pid: int, config: Path) -> bool:
    """Whether the process is a nats-server with this configuration file."""
    try:
        process = psutil.Process(pid)
        command = process.cmdline()
        if is_command_of(command, config):
            return True
        return is_command_of(command, config, process.cwd())
    except psutil.Error:
        return False


def servers_of(config: Path) -> Iterator[psutil.Process]:
    """The nats-servers with this configuration file."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if Path(command[0] if command else "").name == "nats-server" and serves(
            process.pid, config
        ):
            yield process


def lock_store(folder: Path) -> int:
    """Locks the store of the data folder. Returns the descriptor of the lock, for the server to
    inherit. Raises SetupError if a server has the lock, and OSError."""
    descriptor = os.open(folder / STORE_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise SetupError(
            f"a nats-server (pid {pid}) of an earlier start still uses the streams of {folder}: "
            "end it, then start again"
        ) from None
    return descriptor


def spawn(
    command: list[str], output: IO[bytes], env: Mapping[str, str], lock: int
) -> subprocess.Popen[bytes]:
    """Starts a server that keeps the lock until the server ends. Raises SetupError."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env,
            pass_fds=(lock,),
            # The server gets its own session, so that Ctrl-C in the terminal does not reach it.
            start_new_session=True,
        )
    except OSError as error:
        raise SetupError(f"cannot start {command[0]}: {error.strerror}") from None
    with suppress(
        OSError
    ):  # The next start then says "unknown"; a full disk is reported elsewhere.
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{child.pid}\n".encode(), 0)
    return child

"""Guards the store of a data folder against a second nats-server, which would destroy the store:
nats-server itself takes no lock.

- ``nats.lock``: locked (flock) by the nats-server, which inherits the open file, until it ends.
- The command line of a server names its ``nats.conf``, in any spelling of the folder's path.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import psutil

from admittance.runtime.errors import SetupError
from admittance.runtime.nats_server import pid_lock

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
    try:
        return pid_lock.lock(folder / STORE_LOCK)
    except pid_lock.LockHeld as held:
        raise SetupError(
            f"a nats-server (pid {held.pid}) of an earlier start still uses the streams of "
            f"{folder}: end it, then start again"
        ) from None


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
    # Without a pid the next start says "unknown". A full disk is reported elsewhere.
    with suppress(OSError):
        pid_lock.write_pid(lock, child.pid)
    return child

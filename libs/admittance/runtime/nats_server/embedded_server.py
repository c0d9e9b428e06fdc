"""The embedded nats-server: a child process that uses a data folder, or a server that a killed
parent left running.

Files of the folder:

- ``nats/``: JetStream's files; ``nats.conf``: written at every start; ``nats.log`` and at most two
  older parts of it, ``nats.log.<time>``.
- ``nats.json``: pid, start time and port of the server, so that the next start can adopt it.
- ``lock``: locked (flock) while an `admit up` lives. The server does not inherit the lock, so after
  a ``kill -9`` of `admit up` the next `admit up` can lock the folder and adopt the server.
- ``nats.lock``: locked while a server lives (`store_guard`).
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil
import structlog

from admittance.access.server_config import quoted
from admittance.backoff import Backoff
from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from admittance.runtime.nats_server import pid_lock
from admittance.runtime.nats_server.own_folder import own_folder
from admittance.runtime.nats_server.server_accounts import move_streams
from admittance.runtime.nats_server.server_process import (
    Running,
    binary,
    cpu_seconds,
    end,
    greets,
    is_free,
    is_running,
    refuse_used,
)
from admittance.runtime.nats_server.store_guard import lock_store, servers_of, serves, spawn

SYNC_DEFAULT: Final = "2m"
"""How often nats-server writes to the disk if no setting says otherwise."""
LOG_BYTES_MAX: Final = 10 << 20
"""The size in bytes at which the server begins a new log file."""
LOG_FILES_MAX: Final = 3
"""The most log files of the server; the server removes the oldest one."""
START_TIMEOUT: Final = 30.0
"""Seconds within which a started server must open its port, or use CPU: before it opens its port
the server reads its store, perhaps for minutes."""
WORKING_CPU: Final = 0.1
"""Seconds of CPU by which a server shows that it still works."""
SAY_EVERY: Final = 5.0
"""Seconds between two log lines about a start that takes long."""
FREE_BYTES_MIN: Final = 64 * 1024 * 1024
"""The free bytes that the disk must have: with fewer, JetStream would refuse the first facts."""
SERVER_ENVIRONMENT: Final = {"GOMAXPROCS": str(max(1, (os.cpu_count() or 1) // 4))}
"""Defaults for the server's Go runtime. Facts come one by one, and waking a second thread for each
fact costs more than the work on it: on two cores a third of the server's CPU, without more
throughput.
"""

ACCOUNTS: Final = "# Accounts and users."
"""The line of ``nats.conf`` after which the lines of the accounts follow."""
NAME: Final = "admittance-embedded"
"""The name of a server outside a cluster."""

log = structlog.get_logger()


class ClusterServer(NamedTuple):
    """One server of a cluster. ``port``: the server's cluster port. ``routes``: the cluster ports
    of all servers.
    """

    cluster: str
    name: str
    port: int
    routes: tuple[int, ...]


class EmbeddedServer:
    """A nats-server that stores its data in ``data_dir``."""

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        sync_always: bool = False,
        sync: str = "",
        member: ClusterServer | None = None,
        accounts: str = "",
    ) -> None:
        """``port`` 0 takes a free port, after a restart the same port if possible. ``sync_always``:
        every acknowledged message is on the disk; otherwise the server syncs the disk every
        ``sync``, for example "10s"; "": every 2 minutes, the default of nats-server.
        ``member``: the name, port and routes of this server in its cluster; None without a cluster.
        ``accounts``: lines of the configuration with accounts and users (`server_accounts`); "":
        the server demands no credentials.
        """
        self.data_dir = Path(os.path.realpath(data_dir))
        self._wanted_port = port
        self._member = member
        self._accounts = accounts
        self._sync = "always" if sync_always else sync
        self._lock: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self.running: Running | None = None
        self.adopted = False

    @property
    def url(self) -> str:
        if self.running is None:
            raise RuntimeError("the embedded server is not started")
        return f"nats://127.0.0.1:{self.running.port}"

    @property
    def pid(self) -> int:
        if self.running is None:
            raise RuntimeError("the embedded server is not started")
        return self.running.pid

    async def start(self) -> str:
        """Starts or adopts the server and returns its URL. Raises SetupError if folder, port,
        binary or disk prevent the start.
        """
        self.take_folder()
        try:
            left = self._adoptable()
            if left is not None and not self._has_accounts():
                # The server of an earlier start demanded no credentials and this server demands
                # credentials, or the other way round.
                await end(left, 10.0)
                left = None
            if left is not None:
                if self._wanted_port and left.port != self._wanted_port:
                    raise SetupError(
                        f"a nats-server (pid {left.pid}) serves {self.data_dir} on port "
                        f"{left.port}: use --port {left.port}, or end it first"
                    )
                self.running = left
                await self._await_ready()
                self.adopted = True
                log.info("server_adopted", pid=left.pid, port=left.port)
            else:
                await self._launch()
        except BaseException:
            self.release_folder()
            raise
        return self.url

    async def stop(self, timeout: float = 10.0) -> None:
        """Ends the server, by force after ``timeout`` seconds, and releases the data folder."""
        running = self.running
        if running is not None:
            await end(running, timeout)
            if self._child is not None:
                self._child.wait()
            (self.data_dir / "nats.json").unlink(missing_ok=True)
        self.running = None
        self._child = None
        self.release_folder()

    async def end_left(self) -> None:
        """Ends the server that a killed parent left running on the folder, if there is one."""
        if (left := self._adoptable()) is not None:
            await end(left, 10.0)

    def leave(self) -> None:
        """Releases the lock of the data folder and leaves the server running, as a ``kill -9`` of
        this process would.
        """
        if self._child is not None:
            # With a return code the Popen object takes the server for ended and does not wait for
            # the server when Python frees the object.
            self._child.returncode = 0
        self.running = None
        self._child = None
        self.release_folder()

    def alive(self) -> bool:
        """Whether the server process still runs."""
        if self._child is not None:
            return self._child.poll() is None
        return self.running is not None and is_running(self.running)

    def sync_interval(self) -> str:
        """How often the running server writes to the disk, as its configuration says: an adopted
        server has the configuration of an earlier start.
        """
        with suppress(OSError):
            text = (self.data_dir / "nats.conf").read_text()
            if match := re.search(r'^  sync_interval: "([^"]*)"$', text, re.MULTILINE):
                return match[1]
        return SYNC_DEFAULT

    # The folder. ------------------------------------------------------------------------

    def take_folder(self) -> None:
        """Makes the data folder if there is none, and locks it. Raises SetupError if it cannot be
        written, has no room, or if another `admit up` uses it."""
        try:
            own_folder(self.data_dir)
            (self.data_dir / "nats").mkdir(exist_ok=True)
            self._lock = pid_lock.lock(self.data_dir / "lock")
        except pid_lock.LockHeld as held:
            raise SetupError(
                f"another `admit up` (pid {held.pid}) uses {self.data_dir}: "
                "end it, or choose another folder with --data-dir"
            ) from None
        except OSError as error:
            raise SetupError(
                f"cannot write to the data folder {self.data_dir} ({error.strerror}): "
                "choose another with --data-dir"
            ) from None
        try:
            pid_lock.write_pid(self._lock, os.getpid())
            free = shutil.disk_usage(self.data_dir).free
        except OSError as error:
            self.release_folder()
            raise SetupError(
                f"cannot write to the data folder {self.data_dir} ({error.strerror}): "
                "make room, or choose another with --data-dir"
            ) from None
        if free < FREE_BYTES_MIN:
            self.release_folder()
            raise SetupError(
                f"the disk of {self.data_dir} is full ({free >> 20} MiB free, "
                f"{FREE_BYTES_MIN >> 20} MiB needed): make room, or use --data-dir"
            )

    def release_folder(self) -> None:
        """Releases the lock of the data folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _adoptable(self) -> Running | None:
        """The server that an earlier parent left on this folder, if it still runs."""
        try:
            noted = msgspec.json.decode((self.data_dir / "nats.json").read_bytes(), type=Running)
        except (OSError, msgspec.MsgspecError):
            return self._unrecorded()
        if not is_running(noted):
            return self._unrecorded()
        # A process with the same pid and start time may serve another folder.
        config = self.data_dir / "nats.conf"
        return noted if serves(noted.pid, config) else self._unrecorded()

    def _unrecorded(self) -> Running | None:
        """A server on this folder for which ``nats.json`` is missing, because its parent died too
        early. Looks at all processes, but not on a new folder, where no server can run.
        """
        config = self.data_dir / "nats.conf"
        if not config.exists() and not any((self.data_dir / "nats").glob("*")):
            return None
        for process in servers_of(config):
            with suppress(psutil.Error, OSError, ValueError):
                port = int((self.data_dir / "port").read_text())
                running = Running(pid=process.pid, started=process.create_time(), port=port)
                if is_running(running):
                    (self.data_dir / "nats.json").write_bytes(msgspec.json.encode(running))
                    return running
        return None

    # The process. -----------------------------------------------------------------------

    async def _launch(self) -> None:
        program = binary()
        port = self._wanted_port or self._free_port()
        refuse_used(port)
        config = self.data_dir / "nats.conf"
        log_file = self.data_dir / "nats.log"
        guard = None
        try:
            guard = lock_store(self.data_dir)
            if self._accounts:
                move_streams(self.data_dir / "nats")
            config.write_text(self._config(port))
            (self.data_dir / "port").write_text(str(port))
            log_file.write_bytes(b"")
            with log_file.open("ab") as output:
                env = SERVER_ENVIRONMENT | os.environ
                self._child = spawn([program, "-c", str(config)], output, env, guard)
        except OSError as error:
            raise SetupError(
                f"cannot write to {config} ({error.strerror}): make room, or use --data-dir"
            ) from None
        finally:
            if guard is not None:
                os.close(guard)
        pid = self._child.pid
        self.running = Running(pid=pid, started=psutil.Process(pid).create_time(), port=port)
        (self.data_dir / "nats.json").write_bytes(msgspec.json.encode(self.running))
        try:
            await self._await_ready()
        except BaseException:
            await self.stop(timeout=2.0)
            raise
        log.info("server_started", pid=pid, port=port, folder=str(self.data_dir))

    def _has_accounts(self) -> bool:
        """Whether the server that was started with the present ``nats.conf`` has the wanted
        accounts.
        """
        try:
            text = (self.data_dir / "nats.conf").read_text()
        except OSError:
            return True
        return text.partition(ACCOUNTS)[2].strip() == self._accounts

    def _config(self, port: int) -> str:
        lines = [
            "# Written by `admit up` at every start.",
            f'listen: "127.0.0.1:{port}"',
            f"server_name: {quoted(self._member.name if self._member else NAME)}",
            # Each refused message is a line: without a limit, any client could fill the disk.
            f"logfile: {quoted(str(self.data_dir / 'nats.log'))}",
            f"logfile_size_limit: {LOG_BYTES_MAX}",
            f"logfile_max_num: {LOG_FILES_MAX}",
            "jetstream {",
            f"  store_dir: {quoted(str(self.data_dir / 'nats'))}",
        ]
        if self._sync:
            lines.append(f'  sync_interval: "{self._sync}"')
        lines.append("}")
        if self._member is not None:
            lines += [
                "cluster {",
                f"  name: {quoted(self._member.cluster)}",
                f'  listen: "127.0.0.1:{self._member.port}"',
                f"  routes: [{', '.join(f'nats://127.0.0.1:{at}' for at in self._member.routes)}]",
                "}",
            ]
        if self._accounts:
            lines += [ACCOUNTS, self._accounts]
        return "\n".join([*lines, ""])

    def _free_port(self) -> int:
        with suppress(OSError, ValueError):
            earlier = int((self.data_dir / "port").read_text())
            if is_free(earlier):
                return earlier
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    async def _await_ready(self) -> None:
        """Waits until the server answers on its port, after it has read its store."""
        assert self.running is not None
        began = clock.monotonic()
        deadline, say_at, cpu = began + START_TIMEOUT, began + SAY_EVERY, 0.0
        backoff = Backoff(0.005, 0.1, factor=1.5)
        while (now := clock.monotonic()) < deadline:
            if not self.alive():
                raise SetupError(self._start_error())
            if await greets(self.running.port):
                return
            if (used := cpu_seconds(self.running.pid)) > cpu + WORKING_CPU:
                deadline, cpu = now + START_TIMEOUT, used
            if now >= say_at:
                say_at = now + SAY_EVERY
                log.info("server_reads_store", seconds=round(now - began), cpu_seconds=round(used))
            await asyncio.sleep(backoff.next())
        raise SetupError(
            f"nats-server did not open port {self.running.port} and did nothing for "
            f"{START_TIMEOUT:.0f} s: see {self.data_dir / 'nats.log'}"
        )

    def _start_error(self) -> str:
        last = ""
        with suppress(OSError):
            text = (self.data_dir / "nats.log").read_text(errors="replace")
            lines = [line for line in text.splitlines() if line.strip()]
            marked = [line for line in lines if "[FTL]" in line or "[ERR]" in line]
            last = ((marked or lines) or [""])[-1]
        reason = last.partition("] ")[2].partition("] ")[2] or last.removeprefix("nats-server: ")
        reason = reason or "its log is empty"
        if "address already in use" in reason:
            return f"{reason}: choose another port with --port"
        return f"nats-server ended at its start: {reason} (see {self.data_dir / 'nats.log'})"

"""The system under test as a child process, the user that loads a locked system, and CPU and memory
of its processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import psutil

from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.nats_server.auth_store import CONFIG, SYSTEM
from admittance.runtime.nats_server.jwt_issuer import new_key
from admittance.runtime.nats_server.server_reload import reload
from admittance.runtime.process.child_process import ends_with_parent

USERS: Final = "    users: ["


def add_load_user(auth: Path) -> ConnectionOptions:
    """Adds a user for load generators to the file that the server includes, until `admit auth` or
    `admit up` writes the file again. The user may do everything in the account of the services,
    because a load generator plays people, runners and checks at once. ``auth``: the folder of
    users; if it does not exist, the server is open. Returns the user's login.
    """
    if not auth.exists():
        return NO_OPTIONS
    key = new_key()
    file = auth.parent / "load.creds"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as credentials:
        credentials.write(f"{key.seed}\n")
    config = auth / CONFIG
    # The first list of users in the file is that of the account CORE.
    text = config.read_text().replace(USERS, f"{USERS}\n      {{ nkey: {key.public} }}", 1)
    config.write_text(text)
    return ConnectionOptions(creds=str(file))


async def with_load_user(auth: Path, url: str) -> ConnectionOptions:
    """Adds a user as `add_load_user` does, and reloads the running server."""
    login = add_load_user(auth)
    if login is not NO_OPTIONS:
        await reload(url, str(auth / SYSTEM), NO_OPTIONS)
    return login


READY_SECONDS: Final = 120.0
STOP_SECONDS: Final = 30.0


class Child:
    """`admit` with some arguments as a child process. Standard error goes to ``log``."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log
        self.url = ""
        self.web = ""
        """The link to the web page; "" if the system serves none."""
        self.ready_seconds = 0.0
        """From the start to the line ``ready``."""
        self._began = clock.monotonic()
        self.access = NO_OPTIONS
        """The login with which a load generator connects to the system under test."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def data(self) -> Path:
        """The data folder of an `embedded` system."""
        return self.log.with_name("data")

    @property
    def running(self) -> bool:
        return self.process.returncode is None

    async def ready(self, timeout: float = READY_SECONDS) -> str:
        """Waits for the line ``ready nats://…`` and returns the URL. Raises SetupError."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(timeout):
                async for line in self.process.stdout:
                    words = line.decode(errors="replace").split()
                    if words[:1] == ["web"] and len(words) > 1:
                        self.web = words[1]
                    if words[:1] == ["ready"] and len(words) > 1:
                        self.url = words[1]
                        self.ready_seconds = clock.monotonic() - self._began
                        return self.url
        except TimeoutError:
            why = self.last_log_line()
            raise SetupError(f"the system under test was not ready in time: {why}") from None
        raise SetupError(f"the system under test ended at its start: {self.last_log_line()}")

    async def stop(self) -> int:
        """Ends the child process, with SIGKILL if it takes too long; returns the exit status."""
        if self.running:
            self.process.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self.process.wait()
            except TimeoutError:
                self.kill()
        return await self.process.wait()

    def kill(self) -> None:
        """Ends the child process with ``kill -9``."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)

    def last_log_line(self) -> str:
        """The last log line of the child process."""
        with suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            return next((line for line in reversed(lines) if line.strip()), "nothing logged")
        return "nothing logged"


async def start(
    arguments: Sequence[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    *,
    admit: Path | None = None,
) -> Child:
    """Starts `admit` with arguments; does not wait until it is ready. It ends with this process.
    The contexts of the child process go into the folder of the log, so that the current context of
    the person that measures stays. ``admit``: the program; None: that of this Python.
    """
    command = admit or Path(sys.executable).parent / "admit"
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *ends_with_parent([str(command), *arguments]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
            env={**os.environ, "XDG_CONFIG_HOME": str(log.parent.absolute()), **(env or {})},
        )
    return Child(process, log)


@asynccontextmanager
async def embedded(
    *arguments: str, env: Mapping[str, str] | None = None, admit: Path | None = None
) -> AsyncIterator[Child]:
    """Runs `admit up` with these arguments and further variables on a temporary data folder: yields
    when the system is ready, and ends the system afterwards. ``admit``: as for `start`.
    """
    with tempfile.TemporaryDirectory(prefix="admit-bench-") as folder:
        data = Path(folder) / "data"
        up = ["up", "--port", "0", "--data-dir", str(data), *arguments]
        child = await start(up, Path(folder) / "log", env, admit=admit)
        try:
            url = await child.ready()
            child.access = await with_load_user(data / "auth", url)
            yield child
        finally:
            await child.stop()


SAMPLE_SECONDS: Final = 0.25


class ProcessUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """CPU time (user and system) that one process used between `Meter.start` and `Meter.stop`."""

    name: str
    pid: int
    cpu_seconds: float
    peak_memory_bytes: int


class Meter:
    """Samples processes from `start` to `stop`, also those that start meanwhile.

    ``peak_memory_bytes``: the greatest sum of all resident sets at one moment.
    """

    def __init__(self, find: Callable[[], Iterable[psutil.Process]]) -> None:
        self._find = find
        self._before: dict[psutil.Process, float] = {}
        self._cpu: dict[psutil.Process, float] = {}
        self._peak: dict[psutil.Process, int] = {}
        self._names: dict[psutil.Process, str] = {}
        self._task: asyncio.Task[None] | None = None
        self.peak_memory_bytes = 0

    def start(self) -> None:
        """Begins to sample the CPU time of the processes."""
        self._sample()
        self._before = dict(self._cpu)
        self._task = asyncio.create_task(self._run())

    def stop(self) -> list[ProcessUse]:
        """Ends the sampling and returns the CPU and memory use of each process, the busiest process
        first."""
        if self._task is not None:
            self._task.cancel()
        self._sample()
        used = [
            ProcessUse(
                name=self._names[process],
                pid=process.pid,
                cpu_seconds=round(cpu - self._before.get(process, 0.0), 3),
                peak_memory_bytes=self._peak[process],
            )
            for process, cpu in self._cpu.items()
        ]
        return sorted(used, key=lambda use: -use.cpu_seconds)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            self._sample()

    def _sample(self) -> None:
        together = 0
        for process in self._find():
            # A process may end between any two calls of psutil; then its last sample counts.
            with suppress(psutil.Error):
                times = process.cpu_times()
                memory = process.memory_info().rss
                self._cpu[process] = times.user + times.system
                self._peak[process] = max(self._peak.get(process, 0), memory)
                if process not in self._names:
                    self._names[process] = label(process.cmdline())
                together += memory
        self.peak_memory_bytes = max(self.peak_memory_bytes, together)


def family(pid: int) -> list[psutil.Process]:
    """The process and all its descendants."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def connected(url: str) -> list[psutil.Process]:
    """Local processes that serve ``url`` or are connected to ``url``, except the calling process.

    Processes on other machines are not found.
    """
    port = urlsplit(url.split(",")[0]).port or 4222
    processes: list[psutil.Process] = []
    for process in psutil.process_iter():
        if process.pid == psutil.Process().pid:
            continue
        with suppress(psutil.Error):
            for connection in process.net_connections("tcp"):
                ends = (connection.laddr, connection.raddr)
                if any(end and end.port == port for end in ends):
                    processes.append(process)
                    break
    return processes


def label(command: list[str]) -> str:
    """A short name of a command: ``nats-server``, ``admit serve scheduler``,
    ``workload-controller``."""
    words = [Path(word).name for word in command]
    if words and words[0].startswith("python") and len(words) > 1:
        words = words[1:]
    if words[:1] == ["-m"] and len(words) > 1:
        return words[1].rpartition(".")[2].replace("_", "-")
    if words and words[0] == "admit":
        return " ".join(words[: 3 if "serve" in words[1:2] else 2])
    return words[0] if words else "?"

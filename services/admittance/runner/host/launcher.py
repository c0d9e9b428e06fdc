"""Starts the shims of runs, forwards the notifications that shims send, and tells shims to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final

import structlog

from admittance.runner.host.inherited import without_secrets
from admittance.runner.host.port import RunFiles, RunnerFiles
from admittance.runtime.process import service

log = structlog.get_logger(service="runner")


FORK_SERVER: Final = (
    *(sys.executable, "-I", "-S", "-c"),
    "import sys; sys.path.extend(sys.argv[1:]); "
    "from admittance.runner.jobs.fork_server import fork_server; fork_server()",
    str(Path(__file__).parents[3]),
    str(Path(service.__file__).parents[3]),
)
"""The command of the fork server, which imports modules of the standard library, the shim, and the
declaration of the service.
"""
STARTING_MAX: Final = 32
"""The most shims that start at the same time: more would only compete for the processors."""
STARTING_SECONDS: Final = 10.0
"""Seconds after which the start of a shim frees its slot, so that one slow start cannot block all
others."""


CLOSE_SECONDS: Final = 0.2
"""Longest wait for the end of a fork server that the runner leaves. A fork server whose shims run
on lives as long as they do."""


class ForkServer:
    """A running fork server. Not a process of asyncio, which kills its processes when it forgets
    them."""

    left: ClassVar[list[ForkServer]] = []
    """Fork servers that lived on when their runner left them."""

    def __init__(self, errors: int) -> None:
        """``errors``: the file for the messages of shims."""
        reading, self._names = os.pipe()
        os.set_blocking(self._names, False)
        try:
            self._pid = os.posix_spawn(
                FORK_SERVER[0],
                FORK_SERVER,
                # A job with the runner's Unix user can read the environment of its shim.
                without_secrets(os.environ),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reading, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, errors, 2),
                ],
                # Ctrl-C at the terminal must reach the runner but not the shims.
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE],
            )
        finally:
            os.close(reading)
        self.status: int | None = None

    def has_ended(self) -> bool:
        """Whether the fork server has ended; then ``status`` is its exit status."""
        if self.status is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                if not pid:
                    return False
                self.status = os.waitstatus_to_exitcode(status)
        return True

    def fork(self, folder: Path) -> None:
        """Forks a shim for the run in the folder. Raises BrokenPipeError if the fork server has
        ended, and BlockingIOError if it does not read."""
        os.write(self._names, os.fsencode(folder) + b"\n")

    async def leave(self) -> None:
        """Names no further runs: the fork server ends when its last shim is gone."""
        os.close(self._names)
        for _ in range(int(CLOSE_SECONDS / 0.01)):
            if self.has_ended():
                return
            await asyncio.sleep(0.01)
        self.left.append(self)


class Launcher:
    """The `Shims` of this machine. ``news``: a function that is called with the key of a run when
    the journal of the run has grown."""

    def __init__(self, folder: RunnerFiles, news: Callable[[str], None]) -> None:
        self._folder = folder
        self._news = news
        self._fork_server: ForkServer | None = None
        self._slots = asyncio.Semaphore(STARTING_MAX)
        self._starting: dict[str, asyncio.TimerHandle] = {}
        self._waiting: set[str] = set()
        self._pipe = -1
        self._heard = b""
        self._closed = False

    async def open(self) -> None:
        # The pipe for notifications is opened for reading and writing, so that it never ends and
        # shims always find a reader.
        self._pipe = os.open(self._folder.notify, os.O_RDWR | os.O_NONBLOCK)
        asyncio.get_running_loop().add_reader(self._pipe, self._on_news)
        self._live_fork_server()

    async def close(self) -> None:
        self._closed = True
        for key in list(self._starting):
            self.start_done(key)
        if self._pipe >= 0:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
        server, self._fork_server = self._fork_server, None
        if server is not None:
            await server.leave()

    async def launch(self, run: RunFiles) -> None:
        key = run.identity.key
        if key in self._waiting or key in self._starting:
            return
        self._waiting.add(key)
        try:
            await self._slots.acquire()
        finally:
            self._waiting.discard(key)
        if self._closed:
            self._slots.release()
            return
        loop = asyncio.get_running_loop()
        self._starting[key] = loop.call_later(STARTING_SECONDS, self.start_done, key)
        for _ in range(3):
            try:
                self._live_fork_server().fork(run.path)
                return
            except BrokenPipeError:
                # The fork server has died, so the next one gets the run's folder.
                await asyncio.sleep(0.01)
            except BlockingIOError:
                log.error("fork_server_hangs", run=key)  # the run is launched again later
                return
        log.error("fork_server_dies", run=key)

    def start_done(self, key: str) -> None:
        timer = self._starting.pop(key, None)
        if timer is not None:
            timer.cancel()
            self._slots.release()

    def start_slots(self) -> tuple[int, int]:
        used = min(len(self._starting), STARTING_MAX)
        return used, STARTING_MAX - used

    def stop(self, run: RunFiles) -> None:
        _signal_shim(run, signal.SIGTERM)

    def tell_drain(self, run: RunFiles) -> None:
        if run.identity.warns:  # a shim of an earlier version would end by this signal
            _signal_shim(run, signal.SIGUSR1)

    def kill(self, run: RunFiles) -> None:
        _signal_shim(run, signal.SIGKILL)

    def _live_fork_server(self) -> ForkServer:
        server = self._fork_server
        if server is None or server.has_ended():
            if server is not None:
                log.warning("fork_server_restarted", status=server.status)
            # Fork servers that the runner has left are reaped.
            ForkServer.left[:] = [one for one in ForkServer.left if not one.has_ended()]
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            errors = os.open(self._folder.root / "shim.log", flags, 0o600)
            try:
                server = self._fork_server = ForkServer(errors)
            finally:
                os.close(errors)
        return server

    def _on_news(self) -> None:
        try:
            data = os.read(self._pipe, 65536)
        except BlockingIOError:
            return
        *keys, self._heard = (self._heard + data).split(b"\n")
        for key in dict.fromkeys(keys):
            self._news(key.decode(errors="replace"))


def _signal_shim(run: RunFiles, sig: signal.Signals) -> None:
    pid = run.shim_pid()
    if pid and run.shim_lives():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, sig)

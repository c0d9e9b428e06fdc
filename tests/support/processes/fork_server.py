"""Starts processes of Admittance by forking a process that has imported the code already.

Importing takes most of a second of CPU; a fork takes some milliseconds. Each fork is a real process
with its own signals, files and exit status. Tests of the start itself use `subprocess`."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Final, NamedTuple

from support.servers import LIMIT

PRELOADED: Final = (
    "admittance.cli.commands.program",
    "admittance.cli.objects.get",
    "admittance.cli.workloads.lifecycle",
    "admittance.cli.show.lists",
    "admittance.cli.up.up",
    "admittance.runtime.process.supervise",
    "admittance.workload_controller.service",
    "admittance.scheduler.service",
    "admittance.retry_timer.service",
    "admittance.variant_controller.service",
    "admittance.array_controller.service",
    "admittance.provisioning_check.service",
    "admittance.provider_pool.service",
    "admittance.runner.service",
    "admittance.cli.objects.apply",
    "admittance.cli.auth.auth",
    "admittance.cli.objects.describe",
    "admittance.cli.up.commands",
    "admittance.doctor.examination",
    "admittance.cli.show.descriptions",
    "admittance.cli.show.explanations",
    "admittance.cli.show.simulations",
    "admittance.cli.workloads.submit",
    "admittance.cli.support.files",
    # Commands import these when they run.
    "admittance.client.requests.applying",
    "admittance.client.requests.workloads.changes",
    "admittance.client.requests.workloads.history",
    "admittance.client.requests.submissions.submitting",
    "admittance.client.requests.workloads.waits",
    "admittance.client.requests.submissions.warnings",
    # Its children begin with it, and nats-py imports its part for JetStream late.
    "support.processes.fork_server",
    "nats.js.client",
    "support.processes.frozen_imports",
)
_context: Final = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(PRELOADED))
_starting: Final = Lock()


@cache
def _start_fork_server() -> None:
    """Starts the fork server with this process's search path, which Python 3.11 does not pass on:
    without it, each fork would import the modules of tests itself."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


class ForkedProcess:
    """A process made by a fork. ``arguments``: ``admit`` and its words, or a module and its words.
    ``stdin``, ``out``, ``err``: files. Its methods are those of `asyncio.subprocess.Process`."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        *,
        out: Path,
        err: Path | None = None,
        stdin: Path | None = None,
        cwd: Path | None = None,
    ) -> None:
        files = (str(stdin or os.devnull), str(out), str(err or out))
        with _starting:
            _start_fork_server()
        self._process: ForkServerProcess = _context.Process(
            target=_run, args=(list(arguments), dict(env), files, cwd or Path.cwd()), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status; minus the signal that ended it; None: it runs."""
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        """Raises ProcessLookupError if the process has ended."""
        if self.returncode is not None:
            raise ProcessLookupError(self.pid)
        os.kill(self.pid, number)

    async def wait(self) -> int | None:
        """The exit status, once the process has ended."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        return self.returncode

    def join(self, seconds: float) -> int | None:
        """Like `wait`, without an event loop, for so many seconds at most."""
        self._process.join(seconds)
        return self.returncode

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()


class Answer(NamedTuple):
    """The answer of a command."""

    status: int
    out: str
    err: str


def run_admit(
    *words: str,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    cwd: Path | None = None,
    limit: float = 2 * LIMIT,
) -> Answer:
    """Runs the command ``admit`` to its end. ``env``: variables beside those of this process."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").write_text(stdin)
        process = ForkedProcess(
            ["admit", *words],
            {**os.environ, **(env or {})},
            stdin=folder / "in",
            out=folder / "out",
            err=folder / "err",
            cwd=cwd,
        )
        status = process.join(limit)
        if status is None:
            process.kill()
            raise TimeoutError(f"admit {' '.join(words)} has not ended")
        return Answer(status, (folder / "out").read_text(), (folder / "err").read_text())


def _run(arguments: list[str], env: dict[str, str], files: tuple[str, str, str], cwd: Path) -> None:
    """The main function of the process that was forked."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    stdin, out, err = files
    os.dup2(os.open(stdin, os.O_RDONLY), 0)
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1)
    from admittance.runtime import chance

    # Otherwise all processes would have the chance of the process that they are forks of.
    chance._fast.seed()
    sys.argv = arguments
    if arguments[0] == "admit":
        from admittance.cli.main import main

        main()
    else:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)

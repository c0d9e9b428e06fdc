"""How `admit up` and `admit serve` end: in order after the first stop signal, at once when Ctrl-C
follows. A further SIGTERM changes nothing, since supervisors and wrappers may send several.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Final

import psutil

from admittance.cli.support import output
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.nats_server.server_process import is_running
from admittance.runtime.process.supervise import stop_on_signals

SERVER_SECONDS: Final = 2.0
"""How long the embedded server may take to end after such a Ctrl-C."""


class Ending:
    """Sets ``stop`` at the first stop signal. ``server``: the embedded server of this process,
    which ends with it. ``in_time``: see `stop_on_signals`. ``has_jobs``: whether a runner starts
    here.
    """

    def __init__(self, *, in_time: bool, has_jobs: bool) -> None:
        self.stop = asyncio.Event()
        self.server: EmbeddedServer | None = None
        self._has_jobs = has_jobs
        stop_on_signals(self.stop, in_time=in_time, again=self._again)

    def _again(self, number: signal.Signals) -> None:
        if number != signal.SIGINT:
            output.note(
                "already ending: jobs have their grace periods; Ctrl-C (SIGINT) ends this at once"
            )
            return
        running = self.server.running if self.server is not None else None
        if running is not None and is_running(running):
            _end_server(running.pid)
        left = (
            ": jobs may still run, until the next start on this data folder takes them over, or "
            "until their claims expire (ADMIT_CLAIM_SECONDS)"
            if self._has_jobs
            else ""
        )
        output.error(f"ended at once by Ctrl-C{left}")
        os._exit(128 + number)


def _end_server(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.terminate()
        try:
            process.wait(SERVER_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()

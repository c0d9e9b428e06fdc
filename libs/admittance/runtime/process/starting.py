"""The first lines of a process: until it serves, SIGTERM and SIGINT end it at once.

Reading all modules takes a second or more. A signal that comes before there is a handler ends a
process with the status of a failure; and the first process of a container does not end at all,
since Linux ignores there what has no handler. So this module imports next to nothing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from importlib import import_module
from typing import Any


def end_at_once_on_signals() -> None:
    """From now on SIGTERM and SIGINT end the process with status 0, until an event loop takes them
    over. There is nothing yet that would have to be ended in order."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))


def run_service(module: str, more: Callable[[Any], dict[str, Any]] | None = None) -> int:
    """Runs the service of that module, its ``SERVICE`` and ``run``, until SIGINT or SIGTERM; the
    exit status. ``more``: further arguments of ``run``, made from the settings."""
    end_at_once_on_signals()
    shell, service = import_module(module), import_module("admittance.runtime.process.supervise")
    status: int = service.main(shell.SERVICE, shell.run, more)
    return status

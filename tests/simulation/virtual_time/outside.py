"""What a simulated process may not touch: files, sockets, threads, sleep and the real clock."""

from __future__ import annotations

import builtins
import io
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from simulation.virtual_time.loop import VirtualLoop


class TouchedOutside(Exception):
    """A process of the simulation touched the world outside."""


FORBIDDEN: Final = (
    (builtins, "open"),
    (io, "open"),
    (os, "open"),
    (threading.Thread, "start"),
    (time, "sleep"),
    (time, "time"),
    (time, "time_ns"),
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (time, "perf_counter"),
    (socket, "socket"),
)


@contextmanager
def forbidden(loop: VirtualLoop) -> Iterator[list[str]]:
    """Refuses what callbacks of a process touch, and notes it with the name of the process, here
    and among the loop's complaints, since a service may take the error for trouble of its own."""
    touched: list[str] = []
    with ExitStack() as stack:
        for where, name in FORBIDDEN:
            stack.enter_context(patch.object(where, name, _guard(loop, where, name, touched)))
        yield touched


def _guard(loop: VirtualLoop, where: Any, name: str, touched: list[str]) -> Callable[..., Any]:
    original = getattr(where, name)

    def call(*args: Any, **named: Any) -> Any:
        # Tracebacks read the source, and a service its version from the installed package.
        file = str(args[0]) if args else ""
        installed = file.endswith(".py") or file.startswith((sys.prefix, sys.base_prefix))
        if loop.current is not None and not installed:
            said = f"{loop.current.name} calls {where.__name__}.{name}{args}"
            loop.complaints.append(said)
            touched.append(said)
            raise TouchedOutside(said)
        return original(*args, **named)

    return call

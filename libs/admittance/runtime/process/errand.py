"""A process that answers one question: it reads the question from standard input, and writes the
answer to standard output, one message a line."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry import logs

NICE: Final = 10
"""Niceness of the process: the operating system gives it less CPU time than the service that
started it."""


def run_errand(name: str, answer: Callable[[Settings, bytes], Sequence[msgspec.Struct]]) -> int:
    """Answers with the messages of ``answer``; returns the exit status of the process."""
    with suppress(OSError):
        os.nice(NICE)
    # The process runs for seconds and frees little memory: garbage collection would take a fifth of
    # the time for nothing.
    gc.disable()
    settings = Settings.from_env(name)
    logs.configure(name, settings.instance, settings.json_logs, level="error")
    for message in answer(settings, sys.stdin.buffer.read()):
        sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    return 0

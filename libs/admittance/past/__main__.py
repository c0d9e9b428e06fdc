"""``python -m admittance.past`` answers questions about the past: it reads a `ThenTask` from each
line of standard input, and writes a `ThenAnswer` to a line of standard output, until its input
ends.

A scheduler starts it with the first question. It reads the bus itself, with the scheduler's login,
and writes nothing to it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from admittance.events.requests.past import ThenAnswer, ThenReply, ThenTask
from admittance.past.answers import PastAnswers
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.process.errand import NICE
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry import logs
from admittance.scheduling.state.config import Config

LINE_MAX = 4 << 20
"""The most bytes of a task: a request is at most 1 MiB."""


def main() -> int:
    """Answers until the input ends; returns the exit status."""
    with suppress(OSError):
        os.nice(NICE)
    settings = Settings.from_env("past")
    logs.configure("past", settings.instance, settings.json_logs, level="error")
    asyncio.run(_serve(settings))
    return 0


async def _serve(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    bus: Bus | None = None
    answers: PastAnswers | None = None
    try:
        while line := await reader.readline():
            task = msgspec.json.decode(line, type=ThenTask)
            try:
                if bus is None:
                    bus = await Bus.connect(
                        settings.url, name="admit-past", access=settings.connection
                    )
                if answers is None:
                    config = msgspec.json.decode(task.config, type=Config)
                    answers = PastAnswers(bus, Path(task.folder), config)
                reply = await answers.answer(task.subject, task.then, from_log=task.from_log)
            except AdmittanceError as error:
                reply = ThenReply(error=f"cannot read the history: {error}")
            answer = ThenAnswer(id=task.id, reply=reply)
            sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.buffer.flush()
    finally:
        if bus is not None:
            await bus.close()


if __name__ == "__main__":
    sys.exit(main())
